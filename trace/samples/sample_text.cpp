#include "trace/samples/sample_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kMostParts = 8;

std::string plural(std::size_t count, const std::string& word) {
  return count == 1 ? word : word + "es";
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == kMostParts) {
      return text + separator + "...";
    }
    text += (i == 0 ? "" : separator) + parts[i];
  }
  return text;
}

// "0, 2, 4, 6": as they come.
std::string in_order(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> parts;
  for (const std::int64_t number : numbers) {
    parts.push_back(std::to_string(number));
  }
  return joined(parts, ", ");
}

std::vector<std::int64_t> ascending(const std::set<std::int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

std::string microbatches_text(const std::set<std::int64_t>& microbatches) {
  return plural(microbatches.size(), "micro-batch") + " " + numbers_text(ascending(microbatches));
}

// The samples that each group of ranks has of a micro-batch, in the order in which it holds them.
using Hands = std::map<std::vector<int>, std::vector<std::int64_t>>;

Hands hands_of(std::int64_t microbatch, const DataRows& rows, const DealtSamples& dealt) {
  Hands hands;
  for (const auto& [sample, place] : dealt.all()) {
    if (place && place->microbatch == microbatch) {
      const std::set<int>& ranks = rows.candidate.at(sample).ranks;
      hands[{ranks.begin(), ranks.end()}].push_back(place->sample);
    }
  }
  return hands;
}

bool is_strided(const Hands& hands) {
  const auto stride = static_cast<std::int64_t>(hands.size());
  std::int64_t first = 0;
  for (const auto& [ranks, samples] : hands) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i] != first + static_cast<std::int64_t>(i) * stride) {
        return false;
      }
    }
    ++first;
  }
  return hands.size() > 1;
}

std::string order_text(const Hands& hands) {
  std::vector<std::string> parts;
  for (const auto& [ranks, samples] : hands) {
    parts.push_back(ranks_of_samples(ranks) + (ranks.size() == 1 ? " has " : " have ") +
                    in_order(samples));
  }
  const std::string all = joined(parts, "; ");
  return is_strided(hands) ? "are dealt as torch's DistributedSampler deals them (" + all + ")"
                           : "lie in another order in the candidate (" + all + ")";
}

}  // namespace

std::string numbers_text(std::span<const std::int64_t> numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    parts.push_back(std::to_string(numbers[i]) + (last == i ? ""
                                                  : last == i + 1
                                                      ? ", " + std::to_string(numbers[last])
                                                      : "-" + std::to_string(numbers[last])));
    i = last + 1;
  }
  return joined(parts, ", ");
}

std::string ranks_of_samples(const std::vector<int>& ranks) {
  return std::string(ranks.size() == 1 ? "rank " : "ranks ") +
         numbers_text(std::vector<std::int64_t>(ranks.begin(), ranks.end()));
}

std::vector<std::string> dealing_sentences(const DataRows& rows, const DealtSamples& dealt) {
  std::map<std::string, std::set<std::int64_t>> orders;  // micro-batches by how they are dealt
  std::map<std::set<std::int64_t>, std::set<std::int64_t>> batches;  // of the reference, by sources
  for (const std::int64_t microbatch : dealt.complete()) {
    if (!dealt.is_natural(microbatch)) {
      orders[order_text(hands_of(microbatch, rows, dealt))].insert(microbatch);
    }
    if (dealt.sources(microbatch) != std::set{microbatch}) {
      batches[dealt.sources(microbatch)].insert(microbatch);
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [sources, targets] : batches) {
    sentences.push_back("the candidate's " + microbatches_text(sources) +
                        (sources.size() == 1 ? " is" : " are") + " the reference's " +
                        microbatches_text(targets));
  }
  for (const auto& [order, microbatches] : orders) {
    sentences.push_back("samples of " + microbatches_text(microbatches) + " " + order +
                        "; they were put in the reference's order");
  }
  return sentences;
}

std::vector<std::string> padding_sentences(const DataRows& rows, const DealtSamples& dealt) {
  // By micro-batch and length of the reference: who has how many positions.
  std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::string>> shorter;
  for (const auto& [sample, place] : dealt.all()) {
    const ReadSample& read = rows.candidate.at(sample);
    const auto found = place ? read.padded.find(place->microbatch) : read.padded.end();
    if (found == read.padded.end() || !dealt.complete().contains(place->microbatch)) {
      continue;
    }
    const bool is_other =
        sample.microbatch != place->microbatch || dealt.sources(place->microbatch).size() > 1;
    for (const auto& [widths, length] : found->second) {
      shorter[{place->microbatch, widths.reference}].insert(
          ranks_of_samples({read.ranks.begin(), read.ranks.end()}) +
          (is_other ? " in micro-batch " + std::to_string(sample.microbatch) : "") + " to " +
          std::to_string(widths.candidate));
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [batch, ranks] : shorter) {
    sentences.push_back("the reference pads the samples of micro-batch " +
                        std::to_string(batch.first) + " to " + std::to_string(batch.second) +
                        " positions, the candidate's " +
                        joined({ranks.begin(), ranks.end()}, ", ") + "; padding was not compared");
  }
  return sentences;
}

IncompleteText incomplete_text(std::int64_t microbatch,
                               const DataRows& rows,
                               const DealtSamples& dealt) {
  std::vector<std::int64_t> missing;
  // By the ranks that read them, those of the first reader before those of the others.
  std::map<std::vector<std::set<int>>, std::vector<std::int64_t>> repeated;
  std::set<int> concerned;
  for (std::int64_t sample = 0; sample < dealt.count_of(microbatch); ++sample) {
    const std::vector<ClaimedSample> readers = dealt.readers({microbatch, sample});
    if (readers.empty()) {
      missing.push_back(sample);
    }
    if (readers.size() < 2) {
      continue;
    }
    std::vector<std::set<int>> ranks;
    for (const ClaimedSample& reader : readers) {
      ranks.push_back(rows.candidate.at(reader).ranks);
    }
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      concerned.insert(ranks[i].begin(), ranks[i].end());
    }
    repeated[std::move(ranks)].push_back(sample);
  }
  const auto text = [](const std::set<int>& ranks) {
    return ranks_of_samples({ranks.begin(), ranks.end()});
  };
  const auto samples_text = [](const std::vector<std::int64_t>& samples) {
    return (samples.size() == 1 ? "sample " : "samples ") + numbers_text(samples);
  };
  std::vector<std::string> parts;
  for (const auto& [ranks, samples] : repeated) {
    parts.push_back(ranks[1] == ranks[0]
                        ? "the candidate's " + text(ranks[0]) + " reads " + samples_text(samples) +
                              " " + (ranks.size() == 2 ? "twice" : "several times")
                        : "the candidate's " + text(ranks[1]) + " reads " + samples_text(samples) +
                              ", which " + text(ranks[0]) + " reads as well");
  }
  if (!missing.empty()) {
    parts.push_back(samples_text(missing) + (missing.size() == 1 ? " is" : " are") +
                    " read by no rank");
  }
  const IncompleteText unknown = unknown_text(rows, dealt);
  if (!unknown.sentence.empty()) {
    parts.push_back(unknown.sentence);
    concerned.insert(unknown.ranks.begin(), unknown.ranks.end());
  }
  return {joined(parts, "; "), {concerned.begin(), concerned.end()}};
}

IncompleteText unknown_text(const DataRows& rows, const DealtSamples& dealt) {
  std::map<std::set<int>, std::size_t> counts;
  for (const auto& [sample, place] : dealt.all()) {
    if (!place) {
      ++counts[rows.candidate.at(sample).ranks];
    }
  }
  IncompleteText text;
  std::set<int> concerned;
  for (const auto& [ranks, count] : counts) {
    text.sentence += (text.sentence.empty() ? "the candidate's " : ", and ") +
                     ranks_of_samples({ranks.begin(), ranks.end()}) + " reads " +
                     std::to_string(count) + (count == 1 ? " sample" : " samples");
    concerned.insert(ranks.begin(), ranks.end());
  }
  if (!counts.empty()) {
    text.sentence += " that the reference does not read in this step";
  }
  text.ranks = {concerned.begin(), concerned.end()};
  return text;
}

}  // namespace ttrace
