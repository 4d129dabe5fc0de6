// Attention computed again in double from the recorded queries, keys and values, at sampled places:
// with another scale of the scores, with a mask that is one token off, without a mask.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace ttrace {
namespace {

// The parts of the sequence that ranks hold, and where a token lies in them.
struct Parts {
  std::vector<std::vector<std::int64_t>> tokens;  // by part and place in it
  std::vector<std::size_t> part;                  // by token
  std::vector<std::int64_t> place;                // by token
  std::vector<std::vector<std::int64_t>>
      first_place;  // of the queries of one part that see another

  [[nodiscard]] bool is_cut() const { return tokens.size() > 1; }
};

// Of one side: query [s, b, n, d], key and value [s, b, g, d], output [s, b, n d].
struct Attention {
  Values query;
  Values key;
  Values value;
  Values output;
  Parts parts;                   // of the candidate
  std::int64_t rank_groups = 0;  // groups that one rank of it holds

  [[nodiscard]] std::int64_t tokens() const { return query.shape[0]; }
  [[nodiscard]] std::int64_t samples() const { return query.shape[1]; }
  [[nodiscard]] std::int64_t heads() const { return query.shape[2]; }
  [[nodiscard]] std::int64_t groups() const { return key.shape[2]; }
  [[nodiscard]] std::int64_t width() const { return query.shape[3]; }
};

struct Place {
  std::int64_t token = 0;
  std::int64_t sample = 0;
  std::int64_t head = 0;
};

// What attention does with keys that lie in another rank's part of the sequence.
enum class Elsewhere {
  kRight,
  kUnseen,      // nothing: a rank attends to its own part alone
  kRowNumbers,  // masks them like its own, by their number within the part
  kExchanged    // takes [rows, groups] for [groups, rows]
};

// A token sees those before it, and `ahead` tokens more.
struct Rule {
  double scale = 0.0;
  std::int64_t ahead = 0;
  Elsewhere elsewhere = Elsewhere::kRight;
};

Parts parts_of(const Match& query, std::int64_t tokens) {
  Parts parts;
  std::vector<std::vector<Segment>> cuts;
  parts.part.resize(static_cast<std::size_t>(tokens));
  parts.place.resize(static_cast<std::size_t>(tokens));
  for (const Shard& shard : query.candidate) {
    const DimPlacement& dim = shard.record->placement.dims.at(0);
    if (std::find(cuts.begin(), cuts.end(), dim.segments) != cuts.end()) {
      continue;  // another rank with the same tokens, of other heads
    }
    cuts.push_back(dim.segments);
    std::vector<std::int64_t> held(static_cast<std::size_t>(dim.local_size), -1);
    for (const Segment& segment : dim.segments) {
      for (std::int64_t i = 0; i < segment.extent; ++i) {
        const std::int64_t token = segment.logical + i;
        held[static_cast<std::size_t>(segment.local + i)] = token;
        parts.part[static_cast<std::size_t>(token)] = parts.tokens.size();
        parts.place[static_cast<std::size_t>(token)] = segment.local + i;
      }
    }
    if (std::find(held.begin(), held.end(), -1) != held.end()) {
      return {};  // padded
    }
    parts.tokens.push_back(std::move(held));
  }
  const std::size_t count = parts.tokens.size();
  parts.first_place.assign(count, std::vector<std::int64_t>(count, tokens));
  for (std::size_t part = 0; part < count; ++part) {
    for (std::size_t other = 0; other < count; ++other) {
      const std::int64_t first_key =
          *std::min_element(parts.tokens[other].begin(), parts.tokens[other].end());
      for (const std::int64_t token : parts.tokens[part]) {
        if (token >= first_key) {
          parts.first_place[part][other] = std::min(parts.first_place[part][other],
                                                    parts.place[static_cast<std::size_t>(token)]);
        }
      }
    }
  }
  return parts;
}

std::int64_t groups_of_a_rank(const Match& key, std::int64_t groups) {
  const std::int64_t held =
      key.candidate.empty() ? 0 : key.candidate[0].record->placement.dims.at(2).local_size;
  return held > 0 && groups % held == 0 ? held : groups;
}

std::optional<Attention> attention_of(const Evidence& evidence, bool candidate) {
  std::array<std::optional<Values>, 4> found;
  for (int slot = 0; slot < 4; ++slot) {
    TensorId id = evidence.finding().id;
    if (slot < 3) {
      id.kind = Kind::kInput;
      id.slot = slot;
    }
    const Match* match = evidence.find(id);
    found[static_cast<std::size_t>(slot)] =
        match == nullptr ? std::nullopt
                         : (candidate ? evidence.candidate(*match) : evidence.reference(*match));
  }
  if (!found[0] || !found[1] || !found[2] || !found[3]) {
    return std::nullopt;
  }
  const auto& q = found[0]->shape;
  const auto& k = found[1]->shape;
  const auto& out = found[3]->shape;
  const bool fits = q.size() == 4 && k.size() == 4 && found[2]->shape == k && q[0] == k[0] &&
                    q[1] == k[1] && q[3] == k[3] && k[2] > 0 && q[2] % k[2] == 0 &&
                    out == std::vector<std::int64_t>{q[0], q[1], q[2] * q[3]};
  if (!fits) {
    return std::nullopt;
  }
  TensorId query = evidence.finding().id;
  query.kind = Kind::kInput;
  Parts parts = parts_of(*evidence.find(query), q[0]);
  TensorId key = query;
  key.slot = 1;
  const std::int64_t groups = groups_of_a_rank(*evidence.find(key), k[2]);
  return Attention{*std::move(found[0]),
                   *std::move(found[1]),
                   *std::move(found[2]),
                   *std::move(found[3]),
                   std::move(parts),
                   groups};
}

const double* row_of(const Values& values,
                     std::int64_t token,
                     std::int64_t sample,
                     std::int64_t head) {
  const auto& shape = values.shape;
  return values.data.data() + ((token * shape[1] + sample) * shape[2] + head) * shape[3];
}

struct Key {
  std::int64_t token = 0;
  std::int64_t group = 0;
  bool seen = true;
};

// What a query takes for the key of `token` and its own group.
Key key_at(const Attention& attention,
           std::int64_t query,
           std::int64_t token,
           std::int64_t group,
           Elsewhere rule) {
  const Parts& parts = attention.parts;
  if (rule == Elsewhere::kRight) {
    return {token, group};
  }
  const std::size_t own = parts.part[static_cast<std::size_t>(query)];
  const std::size_t other = parts.part[static_cast<std::size_t>(token)];
  if (own == other) {
    return {token, group};
  }
  const std::int64_t place = parts.place[static_cast<std::size_t>(token)];
  if (rule == Elsewhere::kExchanged) {
    const std::int64_t groups = attention.rank_groups;
    const std::int64_t at = group % groups * std::ssize(parts.tokens[other]) + place;
    return {parts.tokens[other][static_cast<std::size_t>(at / groups)],
            group / groups * groups + at % groups};
  }
  const std::int64_t number =
      parts.place[static_cast<std::size_t>(query)] - parts.first_place[own][other];
  return {token, group, rule == Elsewhere::kRowNumbers && place <= number};
}

std::vector<double> output_at(const Attention& attention, const Place& place, const Rule& rule) {
  const std::int64_t group = place.head / (attention.heads() / attention.groups());
  const double* query = row_of(attention.query, place.token, place.sample, place.head);
  const std::int64_t seen =
      std::clamp<std::int64_t>(place.token + 1 + rule.ahead, 1, attention.tokens());
  std::vector<double> scores;
  std::vector<Key> keys;
  for (std::int64_t token = 0; token < seen; ++token) {
    const Key at = key_at(attention, place.token, token, group, rule.elsewhere);
    if (!at.seen) {
      continue;
    }
    keys.push_back(at);
    const double* key = row_of(attention.key, at.token, place.sample, at.group);
    double score = 0.0;
    for (std::int64_t i = 0; i < attention.width(); ++i) {
      score += query[i] * key[i];
    }
    scores.push_back(score * rule.scale);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  std::vector<double> output(static_cast<std::size_t>(attention.width()));
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const double weight = std::exp(scores[k] - highest);
    const double* value = row_of(attention.value, keys[k].token, place.sample, keys[k].group);
    total += weight;
    for (std::size_t i = 0; i < output.size(); ++i) {
      output[i] += weight * value[i];
    }
  }
  for (double& number : output) {
    number /= total;
  }
  return output;
}

std::vector<Place> sample_places(const Attention& attention) {
  constexpr std::int64_t kScores = 100000;  // all tokens that a place sees, over all places
  const std::int64_t sampled = std::clamp<std::int64_t>(kScores / attention.tokens(), 32, 256);
  std::vector<Place> places;
  const std::int64_t all = attention.tokens() * attention.samples() * attention.heads();
  const std::int64_t stride = std::max<std::int64_t>(1, all / sampled) | 1;
  for (std::int64_t i = 0; i < all; i += stride) {
    places.push_back({i / attention.heads() / attention.samples(),
                      i / attention.heads() % attention.samples(),
                      i % attention.heads()});
  }
  return places;
}

// ||recorded - computed again|| over the places.
double rest_of(const Attention& attention, const std::vector<Place>& places, const Rule& rule) {
  double squared = 0.0;
  for (const Place& place : places) {
    const std::vector<double> again = output_at(attention, place, rule);
    const double* recorded =
        attention.output.data.data() +
        ((place.token * attention.samples() + place.sample) * attention.heads() + place.head) *
            attention.width();
    for (std::size_t i = 0; i < again.size(); ++i) {
      squared += (recorded[i] - again[i]) * (recorded[i] - again[i]);
    }
  }
  return std::sqrt(squared);
}

// By golden section over factors of `start` from 1/16 to 16.
double best_scale(const Attention& attention, const std::vector<Place>& places, double start) {
  constexpr int kHalvings = 36;
  const double golden = (std::sqrt(5.0) - 1.0) / 2.0;
  const auto rest = [&](double log2) {
    return rest_of(attention, places, {start * std::exp2(log2), 0});
  };
  double low = -4.0;
  double high = 4.0;
  double left = high - golden * (high - low);
  double right = low + golden * (high - low);
  double of_left = rest(left);
  double of_right = rest(right);
  for (int i = 0; i < kHalvings; ++i) {
    if (of_left < of_right) {
      high = right;
      right = left;
      of_right = of_left;
      left = high - golden * (high - low);
      of_left = rest(left);
    } else {
      low = left;
      left = right;
      of_left = of_right;
      right = low + golden * (high - low);
      of_right = rest(right);
    }
  }
  return start * std::exp2((low + high) / 2.0);
}

// Standard error of the factor: residual per number over the slope of the output.
double deviation_of(const Attention& attention,
                    const std::vector<Place>& places,
                    double scale,
                    double rest) {
  constexpr double kStep = 1e-3;
  double slope = 0.0;
  for (const Place& place : places) {
    const auto more = output_at(attention, place, {scale * (1.0 + kStep), 0});
    const auto less = output_at(attention, place, {scale * (1.0 - kStep), 0});
    for (std::size_t i = 0; i < more.size(); ++i) {
      slope += std::pow((more[i] - less[i]) / (2.0 * kStep), 2);
    }
  }
  const auto numbers =
      static_cast<double>(places.size() * static_cast<std::size_t>(attention.width()));
  return slope > 0.0 ? rest / std::sqrt(numbers) / std::sqrt(slope) : 0.0;
}

Diagnosis diagnosis(const std::string& what, double rest, double before) {
  return {Signature::kAttention,
          what +
              "; computed again from the candidate's own query, key and value at sampled places, "
              "which leaves " +
              short_number(rest) + " of " + short_number(before)};
}

struct Errors {
  double before = 0.0;
  double tolerance = 0.0;
};

std::optional<Diagnosis> find_elsewhere(const Attention& candidate,
                                        const std::vector<Place>& places,
                                        double scale,
                                        const Errors& errors) {
  struct Tried {
    Elsewhere rule;
    Signature signature;
    const char* what;
  };
  constexpr std::array kTried = {
      Tried{Elsewhere::kUnseen,
            Signature::kAttention,
            "no token sees those of another rank's part of the sequence"},
      Tried{Elsewhere::kRowNumbers,
            Signature::kAttention,
            "keys of another rank's part are masked like a rank's own, by their number within the "
            "part"},
      Tried{Elsewhere::kExchanged,
            Signature::kWrongView,
            "keys and values of another rank's part, [rows, groups], are read as [groups, rows]"}};
  for (const Tried& tried : kTried) {
    const double rest = candidate.parts.is_cut()
                            ? rest_of(candidate, places, {scale, 0, tried.rule})
                            : errors.before;
    if (rest <= errors.tolerance) {
      Diagnosis found = diagnosis(tried.what, rest, errors.before);
      found.signature = tried.signature;
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> find_attention(const Evidence& evidence) {
  constexpr double kKnown = 0.05;  // of its norm: else it is not this that the reference computes
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kOutput || !evidence.vocabulary().is(Role::kAttention, id.path) ||
      evidence.sides() == nullptr) {
    return std::nullopt;
  }
  const auto reference = attention_of(evidence, false);
  const auto candidate = attention_of(evidence, true);
  if (!reference || !candidate || reference->query.shape != candidate->query.shape) {
    return std::nullopt;
  }
  const std::vector<Place> places = sample_places(*reference);
  const double usual = 1.0 / std::sqrt(static_cast<double>(reference->width()));
  const double scale = best_scale(*reference, places, usual);
  const double clean = rest_of(*reference, places, {scale, 0});
  const double before = rest_of(*candidate, places, {scale, 0});
  const double share =
      static_cast<double>(static_cast<std::int64_t>(places.size()) * reference->width()) /
      static_cast<double>(reference->output.data.size());
  if (clean > kKnown * std::sqrt(share) * reference->output.norm() || before < 2.0 * clean) {
    return std::nullopt;
  }
  // Its own round-off is what the reference's own replay leaves, or what its bound grants where the
  // reference is a wide one.
  const double rounding = std::max(clean, std::sqrt(share) * evidence.bound());
  const double tolerance = std::max(std::min(2.0 * rounding, 0.5 * before), 0.05 * before);
  const double other = best_scale(*candidate, places, usual);
  if (const double rest = rest_of(*candidate, places, {other, 0}); rest <= tolerance) {
    return diagnosis(
        "scores are scaled by a x the reference's scale, a = " +
            explain_factor(evidence, other / scale, deviation_of(*candidate, places, other, rest)),
        rest,
        before);
  }
  for (const std::int64_t ahead : {std::int64_t{1}, std::int64_t{-1}, reference->tokens()}) {
    if (const double rest = rest_of(*candidate, places, {scale, ahead}); rest <= tolerance) {
      return diagnosis(ahead == 1    ? "every token sees the next one: the causal mask is one off"
                       : ahead == -1 ? "no token sees itself: the causal mask is one off"
                                     : "every token sees all others: there is no causal mask",
                       rest,
                       before);
    }
  }
  return find_elsewhere(*candidate, places, scale, {before, tolerance});
}

}  // namespace ttrace
