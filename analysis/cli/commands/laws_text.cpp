#include "analysis/cli/commands/laws_text.h"

#include "analysis/align/module_path.h"
#include "analysis/causes/source_lines.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/facts.h"
#include "trace/base/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace ttrace::cli {
namespace {

constexpr std::size_t kMostNamed = 8;

// The module that a law accuses.
std::string module_of(const Law& law) {
  const bool is_of_parameter = law.kind == LawKind::kWeightGradient ||
                               law.kind == LawKind::kReducedGradient ||
                               family_of(law.result.kind) == KindFamily::kParameter;
  return is_of_parameter ? ttrace::module_of(law.result.path) : law.result.path;
}

std::string to_do(const Law& law) {
  const std::string module = module_of(law);
  switch (law.kind) {
    case LawKind::kOutput:
      return fmt::format(
          "check the forward of {}: its product, its bias, and the sum or gather over "
          "ranks; input and weight are those of the trace",
          module);
    case LawKind::kInputGradient:
      return "check the backward of the modules that took this tensor: the sum over ranks of the "
             "gradient of their input";
    case LawKind::kWeightGradient:
      return fmt::format(
          "check the backward of {}: what was saved for the gradient of its weight, "
          "and whether something wrote to it since",
          module);
    case LawKind::kReducedGradient:
      return "check what sums gradients over micro-batches and ranks: one that is missing or "
             "counted "
             "twice, a group of other ranks, another divisor than that of the other parameters";
    case LawKind::kGradientNorm:
      return "check which gradients the norm counts: shards of all ranks, copies once, no stale "
             "one";
    case LawKind::kCopies:
      return fmt::format(
          "check what keeps {} equal on these ranks: a broadcast, a sum of gradients, "
          "a seed",
          module);
  }
  return "";
}

// "a, b, c and 4 more"
std::string list_text(const std::vector<std::string>& names) {
  const std::size_t listed = std::min(names.size(), kMostNamed);
  const std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(listed), ", "));
  return names.size() == listed ? text : fmt::format("{} and {} more", text, names.size() - listed);
}

std::vector<std::string> modules_without(const Trace& trace, const std::vector<Law>& laws) {
  std::set<std::string> with;
  for (const Law& law : laws) {
    if (law.kind == LawKind::kOutput || law.kind == LawKind::kWeightGradient) {
      with.insert(module_of(law));
    }
  }
  std::set<std::string> without;
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kParam && !with.contains(ttrace::module_of(record.id.path))) {
        without.insert(pattern_of(ttrace::module_of(record.id.path)));
      }
    }
  }
  return {without.begin(), without.end()};
}

std::string broken_text(const Trace& trace, const LawCounts& counts) {
  const Law& first = *counts.broken.front();
  std::string text =
      fmt::format("BROKEN  {}\n  law        {}\n", place_text(first.result), sentence_of(first));
  if (first.norm > 0.0) {
    text += fmt::format("  size       {} % of the tensor's norm\n",
                        short_number(100.0 * first.residual / first.norm));
  }
  if (const std::string source = code_lines_of(trace).source_of(module_of(first));
      !source.empty()) {
    text += fmt::format("  code       {}\n", source);
  }
  text += fmt::format("  to do      {}\n", to_do(first));
  std::vector<std::string> others;
  for (std::size_t i = 1; i < counts.broken.size(); ++i) {
    others.push_back(place_text(counts.broken[i]->result));
  }
  for (std::size_t i = 0; i < std::min(others.size(), kMostNamed); ++i) {
    text += fmt::format("  {:<10} {}\n", i == 0 ? "also" : "", others[i]);
  }
  if (others.size() > kMostNamed) {
    text += fmt::format("             and {} more\n", others.size() - kMostNamed);
  }
  return text;
}

}  // namespace

void add_obeyed_option(boost::program_options::options_description& named) {
  named.add_options()(
      "reference",
      text_option("TRACE"),
      "a trace of the same model that is right, in whatever layout: laws that it obeys are in "
      "force, and with the limit of twice what it has");
}

std::optional<std::vector<Law>> obeyed_laws(const boost::program_options::variables_map& values) {
  const auto reference = text_of(values, "reference");
  if (!reference) {
    return std::nullopt;
  }
  require_trace_folder(*reference);
  return laws_of(Trace::open(*reference));
}

LawCounts count(const std::vector<Law>& laws, std::size_t left_out) {
  LawCounts counts{.left_out = left_out, .broken = {}};
  for (const Law& law : laws) {
    if (!law.holds()) {
      counts.broken.push_back(&law);
    } else if (law.kind != LawKind::kCopies &&
               (counts.closest == nullptr ||
                law.value() / law.limit > counts.closest->value() / counts.closest->limit)) {
      counts.closest = &law;
    }
  }
  return counts;
}

std::string text_of(const Trace& trace, const std::vector<Law>& laws, const LawCounts& counts) {
  if (laws.empty()) {
    return fmt::format("NOT JUDGED  {} has no tensors of which a law speaks\n", trace.directory());
  }
  std::string text = counts.broken.empty()
                         ? fmt::format("HOLD  all {} hold\n", counted(laws.size(), "law"))
                         : broken_text(trace, counts);
  const auto add = [&](std::string_view label, const std::string& what) {
    text += what.empty() ? "" : fmt::format("  {:<10} {}\n", label, what);
  };
  if (!counts.broken.empty()) {
    add("in all",
        fmt::format("{} of {} are broken", counts.broken.size(), counted(laws.size(), "law")));
  }
  if (counts.closest != nullptr) {
    add("closest",
        fmt::format("{} % of its limit: {}",
                    short_number(100.0 * counts.closest->value() / counts.closest->limit),
                    place_text(counts.closest->result)));
  }
  if (counts.left_out > 0) {
    add("left out",
        fmt::format("{} that the reference does not obey, or does not have",
                    counted(counts.left_out, "law")));
  }
  add("no product", list_text(modules_without(trace, laws)));
  return text;
}

nlohmann::ordered_json json_of(const Trace& trace,
                               const std::vector<Law>& laws,
                               const LawCounts& counts) {
  nlohmann::ordered_json json;
  json["verdict"] = laws.empty() ? "not judged" : counts.broken.empty() ? "hold" : "broken";
  json["trace"] = trace.directory();
  json["laws"] = laws.size();
  json["left_out"] = counts.left_out;
  json["largest"] = counts.closest == nullptr
                        ? nlohmann::ordered_json()
                        : nlohmann::ordered_json(counts.closest->value() / counts.closest->limit);
  json["broken"] = nlohmann::ordered_json::array();
  for (const Law* const law : counts.broken) {
    nlohmann::ordered_json entry;
    entry["id"] = to_string(law->result);
    entry["law"] = name_of(law->kind);
    entry["says"] = sentence_of(*law);
    entry["value"] = std::isfinite(law->value()) ? nlohmann::ordered_json(law->value())
                                                 : nlohmann::ordered_json();
    entry["limit"] = law->limit;
    entry["ranks"] = law->ranks;
    json["broken"].push_back(std::move(entry));
  }
  json["no_product"] = modules_without(trace, laws);
  return json;
}

}  // namespace ttrace::cli
