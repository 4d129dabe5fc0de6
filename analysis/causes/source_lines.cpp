#include "analysis/causes/source_lines.h"

#include "analysis/align/module_path.h"
#include "trace/base/kind.h"
#include "trace/file/code_lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace ttrace {
namespace {

// Whether two modules are called by the same one.
bool are_siblings(const std::string& left, const std::string& right) {
  return left != right &&
         left.substr(0, left.rfind('.') + 1) == right.substr(0, right.rfind('.') + 1);
}

// The sibling of tensors[index]'s module that runs next before (step -1) or after it (step 1) in
// its micro-batch and has a known call; empty if there is none.
std::string neighbour(std::span<const TensorVerdict> tensors,
                      std::size_t index,
                      std::ptrdiff_t step,
                      const CodeLines& lines) {
  const TensorId& id = tensors[index].id;
  for (auto i = static_cast<std::ptrdiff_t>(index) + step;
       i >= 0 && i < static_cast<std::ptrdiff_t>(tensors.size());
       i += step) {
    const TensorId& other = tensors[static_cast<std::size_t>(i)].id;
    if (is_first_forward(other) && same_microbatch(other, id) &&
        are_siblings(other.path, id.path) && !lines.call_of(other.path).empty()) {
      return other.path;
    }
  }
  return "";
}

SourceLines between(const std::string& start,
                    const std::string& first,
                    const std::string& second,
                    const CodeLines& lines) {
  const std::string call = lines.call_of(first);
  return {fmt::format("{}the code between {}, which calls {}, and {}, which calls {}",
                      start,
                      call,
                      first,
                      lines.call_of(second),
                      second),
          place_in(call)};
}

// The place of tensors[index]'s output among the forward records, from which its consumers follow.
std::size_t output_of(std::span<const TensorVerdict> tensors, std::size_t index) {
  const auto output =
      std::ranges::find(tensors, as_kind(tensors[index].id, Kind::kOutput), &TensorVerdict::id);
  return output == tensors.end() ? index : static_cast<std::size_t>(output - tensors.begin());
}

SourceLines region_of(std::span<const TensorVerdict> tensors,
                      std::size_t index,
                      const CodeLines& lines) {
  const TensorId& id = tensors[index].id;
  if (lines.call_of(id.path).empty()) {
    return {};
  }
  if (id.kind == Kind::kInput) {
    const std::string before = neighbour(tensors, index, -1, lines);
    return before.empty() ? SourceLines() : between("", before, id.path, lines);
  }
  if (id.kind == Kind::kGradOutput) {
    const std::string after = neighbour(tensors, output_of(tensors, index), 1, lines);
    return after.empty() ? SourceLines() : between("backward of ", id.path, after, lines);
  }
  return {};
}

}  // namespace

CodeLines code_lines_of(const Trace& trace) {
  CodeLines lines;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      lines.add(file.code());
    }
  }
  return lines;
}

SourceLines source_lines(std::span<const TensorVerdict> tensors,
                         std::size_t index,
                         const CodeLines& lines) {
  const TensorId& id = tensors[index].id;
  if (SourceLines region = region_of(tensors, index, lines); !region.sentence.empty()) {
    return region;
  }
  const bool is_update = is_of_optimizer(id.kind);
  const std::string source = lines.source_of(id.path);
  const std::string call = lines.call_of(is_update ? "optimizer" : id.path);
  if (call.empty()) {
    return {source, place_in(source)};
  }
  const std::string called =
      is_update ? fmt::format("the optimizer is called at {}", call) : "called at " + call;
  return source.empty() ? SourceLines{called, place_in(call)}
                        : SourceLines{fmt::format("{}, {}", source, called), place_in(source)};
}

}  // namespace ttrace
