#include "analysis/align/machine.h"
#include "analysis/align/matching.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/array_text.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/findings/wording.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

constexpr std::int64_t kThreshold = 1000;  // numpy's

struct Values {
  std::int64_t count = 0;
  double squares = 0.0;  // sums over the finite ones
  double sum = 0.0;
  double max_abs = 0.0;
  std::int64_t zeros = 0;
  std::int64_t nonfinite = 0;
};

Values summarize(ElementType type, std::span<const std::byte> bytes) {
  constexpr std::size_t kBlock = 1024;
  std::array<double, kBlock> block{};
  Values values;
  const std::size_t size = element_size(type);
  values.count = static_cast<std::int64_t>(bytes.size() / size);
  for (std::size_t start = 0; start < bytes.size() / size; start += kBlock) {
    const std::size_t length = std::min(kBlock, bytes.size() / size - start);
    to_double(type, bytes.data() + start * size, static_cast<std::int64_t>(length), block.data());
    for (std::size_t i = 0; i < length; ++i) {
      const double value = block[i];
      if (!std::isfinite(value)) {
        ++values.nonfinite;
        continue;
      }
      values.squares += value * value;
      values.sum += value;
      values.max_abs = std::max(values.max_abs, std::abs(value));
      values.zeros += value == 0.0 ? 1 : 0;
    }
  }
  return values;
}

constexpr auto kRow = "  {:<8}{:>12}{:>12}{:>12}{:>10}{:>12}{:>12}\n";

void print_values(const std::string& name, const Values& values) {
  const auto finite = static_cast<double>(values.count - values.nonfinite);
  std::cout << fmt::format(kRow,
                           name,
                           short_number(std::sqrt(values.squares)),
                           short_number(values.max_abs),
                           finite > 0 ? short_number(values.sum / finite) : "-",
                           values.zeros,
                           values.nonfinite,
                           values.count);
}

// Of a tensor whose sketch was kept.
void print_values(const std::string& name,
                  double norm,
                  double max_abs,
                  std::uint64_t nonfinite,
                  std::int64_t count) {
  std::cout << fmt::format(
      kRow, name, short_number(norm), short_number(max_abs), "-", "-", nonfinite, count);
}

// "[0:64, 128:256]", at most four boxes.
std::string region_text(const Placement& placement) {
  constexpr std::size_t kMostListed = 4;
  const std::vector<Rectangle> boxes = rectangles(placement);
  std::string text;
  for (std::size_t i = 0; i < std::min(boxes.size(), kMostListed); ++i) {
    text += i == 0 ? "[" : " [";
    for (std::size_t dim = 0; dim < boxes[i].extent.size(); ++dim) {
      const std::int64_t begin = boxes[i].logical_start[dim];
      text += (dim == 0 ? "" : ", ") + std::to_string(begin) + ":" +
              std::to_string(begin + boxes[i].extent[dim]);
    }
    text += "]";
  }
  if (boxes.size() > kMostListed) {
    text += fmt::format(" and {} more", boxes.size() - kMostListed);
  }
  return boxes.empty() ? "nothing but padding" : text;
}

void print_placement(const Shard& shard) {
  const Record& record = *shard.record;
  const Placement& placement = record.placement;
  std::cout << "  rank " << shard.rank << ": " << name_of(record.type) << ' '
            << shape_text(record.shape) << ", holds "
            << (placement.is_whole() ? "all" : region_text(placement));
  if (placement.partial_count > 1) {
    std::cout << ", addend " << placement.partial_index << " of " << placement.partial_count
              << (placement.partial_over.empty() ? "" : " over " + placement.partial_over);
  }
  if (placement.scale != 1.0) {
    std::cout << ", times " << placement.scale;
  }
  std::cout << "; record " << record.order << " of its rank"
            << (record.inferred ? ", inferred" : "")
            << (record.undeclared ? ", placement not declared" : "") << '\n';
}

// The tensor called `text`, or an error that names the nearest.
const Match& find(const std::vector<Match>& tensors, const std::string& text, const Trace& trace) {
  std::vector<std::string> ids;
  for (const Match& tensor : tensors) {
    ids.push_back(to_string(tensor.id));
  }
  return tensors[find_tensor(ids, text, trace.directory())];
}

// The tensor to print: the logical one, or one rank's own.
struct Shown {
  std::string name;
  Array array;
};

void print_shown(const Shown& shown, const std::string& slices, std::int64_t threshold) {
  std::cout << "\nvalues of " << shown.name << ", " << name_of(shown.array.type) << ' '
            << shape_text(shown.array.shape) << (slices.empty() ? "" : ", [" + slices + "]")
            << ":\n";
  print_array(std::cout, shown.array, parse_ranges(slices, shown.array.shape), threshold);
}

const Shard& shard_of(const Match& tensor, int rank) {
  std::vector<int> ranks;
  for (const Shard& shard : tensor.reference) {
    if (shard.rank == rank) {
      return shard;
    }
    ranks.push_back(shard.rank);
  }
  TTRACE_THROW(UsageError,
               fmt::format("--rank is {}, but {} recorded {}; choose one of those",
                           rank,
                           ranks_text(ranks),
                           to_string(tensor.id)));
}

void print_tensor(const Match& tensor, const MergeResult& merged) {
  std::cout << to_string(tensor.id) << "\nplacement:\n";
  for (const Shard& shard : tensor.reference) {
    print_placement(shard);
  }
  for (const MergeFinding& finding : merged.findings) {
    std::cout << "  " << name_of(finding.defect) << ": " << finding.message << '\n';
  }
  std::cout << "statistics:\n"
            << fmt::format(kRow, "", "norm", "max |x|", "mean", "zeros", "non-finite", "elements");
  for (const Shard& shard : tensor.reference) {
    const std::string name = "rank " + std::to_string(shard.rank);
    const Record& record = *shard.record;
    if (has_elements(shard)) {
      print_values(name, summarize(record.type, shard.bytes));
    } else {
      print_values(
          name, record.norm, record.max_abs, record.nonfinite, element_count(record.shape));
    }
  }
  if (merged.has_tensor()) {
    print_values("merged", summarize(merged.type, merged.bytes));
  } else if (merged.sketch) {
    print_values("merged",
                 norm_of(*merged.sketch),
                 merged.sketch->largest,
                 merged.sketch->nonfinite,
                 element_count(merged.shape));
  }
}

int run_show(const po::variables_map& values) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(
      words.size() == 2,
      UsageError,
      fmt::format("show needs a trace folder and a tensor id, but {} given", words_given(words)));
  const std::int64_t threshold = whole_number(values, "threshold", 0);
  require_trace_folder(words[0]);
  const Trace trace = Trace::open(words[0]);
  const std::vector<Match> tensors = tensors_of(trace);
  const Match& tensor = find(tensors, words[1], trace);
  const MergeResult merged = merge(tensor.reference);
  const auto& slices = values["slice"].as<std::string>();
  Shown shown{"the merged tensor", {merged.type, merged.shape, merged.bytes.data()}};
  if (values.count("rank") != 0) {
    const Shard& shard = shard_of(tensor, values["rank"].as<int>());
    shown = {"rank " + std::to_string(shard.rank),
             {shard.record->type, shard.record->shape, shard.bytes.data()}};
  }
  const bool has_values = values.count("rank") != 0
                              ? has_elements(shard_of(tensor, values["rank"].as<int>()))
                              : merged.has_tensor();
  if (has_values) {
    static_cast<void>(parse_ranges(slices, shown.array.shape));  // refuse before printing anything
  }
  print_tensor(tensor, merged);
  std::cout << machine_line(trace.manifest());
  if (has_values) {
    print_shown(shown, slices, threshold);
  } else {
    std::cout
        << (merged.sketch
                ? "\nThere are no values, because the trace keeps a sketch of this tensor; "
                  "trace with TTRACE_KEEP=bytes to have them.\n"
                : "\nThere are no merged values, because the ranks' parts do not form a whole "
                  "tensor; --rank R prints one part.\n");
  }
  return 0;
}

}  // namespace

Manual show_manual() {
  po::options_description named("Options");
  named.add_options()("slice",
                      text_option("SLICES")->default_value("", "all"),
                      "part of the values to print, in numpy's notation: '0:4,:,-1'")(
      "rank",
      po::value<int>()->value_name("R"),
      "print this rank's own tensor instead of the merged one")(
      "threshold",
      po::value<int>()->default_value(kThreshold)->value_name("N"),
      "print only the edges of a tensor with more than N elements");
  add_help_option(named);
  return {.name = "show",
          .summary = "print one tensor: placement, statistics, values",
          .synopses = {"TRACE ID [options]"},
          .description = {"Prints where every rank's part of the tensor lies, statistics of each "
                          "part and of the merged tensor, what the machine did to numbers, and "
                          "values."},
          .options = named,
          .run = run_show,
          .exit_codes = {{"0", "the tensor was printed"},
                         {"2", "there is no such tensor or trace, or bad usage"}},
          .examples = {
              {"ttrace show runs/1/candidate s0/m0/output/decoder.layers.0/0 --slice '0,:,0:4'",
               "print four features of every sample's first token"}}};
}

}  // namespace ttrace::cli
