#include "analysis/gate/layout_result.h"

#include "analysis/align/id_pattern.h"
#include "analysis/findings/json_text.h"
#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ttrace {
namespace {

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// "aten::mm in layers.0.attention, backward, model.py:88"
std::string operator_text(const Json& zoom) {
  if (!zoom.is_object() || !zoom.contains("operator") || zoom["operator"].is_null()) {
    return "";
  }
  const Json& named = zoom["operator"];
  std::string text = text_of(named, "name");
  if (const std::string module = text_of(named, "module"); !module.empty()) {
    text += " in " + module;
  }
  text += named.value("backward", false) ? ", backward" : "";
  if (const std::string source = text_of(named, "source"); !source.empty()) {
    text += ", " + source;
  }
  return text;
}

void read_first(const Json& report, LayoutResult& result) {
  const Json& first = report.at("first_divergence");
  if (!first.is_object()) {
    return;
  }
  result.first = text_of(first, "id");
  result.source = text_of(first, "source");
  const std::string probable = text_of(first, "probable_cause");
  result.cause = probable.empty() ? text_of(first, "cause") : probable;
  result.faulty = operator_text(report.at("zoom"));
}

// Whether one of the sentences of a report says that an option applied to nothing.
bool applies_to_nothing(const std::string& option, const std::string& sentence) {
  return sentence.starts_with(option + " matches no ");
}

}  // namespace

bool was_compared(const LayoutResult& result) {
  return result.outcome == Outcome::kWithinBound || result.outcome == Outcome::kDiverged;
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kWithinBound:
      return "within bound";
    case Outcome::kDiverged:
      return "DIVERGED";
    case Outcome::kStale:
      return "STALE REFERENCE";
    case Outcome::kNotCompared:
      return "COULD NOT BE COMPARED";
    case Outcome::kNotRun:
      return "not run";
  }
  return "";
}

void read_report(const std::string& folder, LayoutResult& result) {
  const std::string file = folder + "/report.json";
  try {
    const Json report = Json::parse(read_text_file(file));
    result.tensors = report.at("counts").at("tensors");
    result.findings = static_cast<std::size_t>(std::ranges::count_if(
        report.at("tensors"), [](const Json& tensor) { return tensor.at("finding").get<bool>(); }));
    for (const Json& sentence : report.at("warnings")) {
      result.unused.push_back(sentence);
    }
    for (const Json& sentence : report.at("lacking")) {
      result.problems.push_back(sentence);
    }
    if (text_of(report, "verdict") == "not_judged") {
      result.problems.push_back(text_of(report, "headline"));
    }
    for (const Json& sentence : report.at("unmet")) {
      result.problems.push_back(sentence);
    }
    for (const Json& part : report.at("not_seen")) {
      result.not_seen.push_back(fmt::format(
          "{} ({}): {}", text_of(part, "kind"), text_of(part, "side"), text_of(part, "sentence")));
    }
    read_first(report, result);
  } catch (const Json::exception& error) {
    TTRACE_THROW(FormatError, file, " is damaged (", error.what(), "); run the gate again");
  }
}

std::vector<std::string> unneeded(const GateFile& file, const std::vector<LayoutResult>& results) {
  std::vector<std::string> sentences;
  std::vector<std::string> options;
  for (const GatePermission& permission : file.permissions) {
    const std::string option = IdPattern(permission.option(), permission.pattern).text();
    options.push_back(option);
    bool all_compared = true;
    bool used = false;
    for (const LayoutResult& result : results) {
      if (permission.concerns(result.name)) {
        all_compared = all_compared && was_compared(result);
        used = used || std::ranges::none_of(result.unused, [&](const std::string& sentence) {
                 return applies_to_nothing(option, sentence);
               });
      }
    }
    if (all_compared && !used) {
      sentences.push_back(
          fmt::format("{}: nothing needs the permission for '{}' any more; remove the entry",
                      permission.place,
                      permission.pattern));
    }
  }
  for (const LayoutResult& result : results) {
    for (const std::string& sentence : result.unused) {
      const bool permitted = std::ranges::any_of(
          options, [&](const std::string& option) { return applies_to_nothing(option, sentence); });
      if (!permitted) {
        sentences.push_back(
            fmt::format("layout {}: {}; correct the option, or remove it", result.name, sentence));
      }
    }
  }
  return sentences;
}

}  // namespace ttrace
