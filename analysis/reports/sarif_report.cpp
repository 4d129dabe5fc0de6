#include "analysis/findings/json_text.h"
#include "analysis/reports/facts.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/report_writers.h"
#include "trace/base/version.h"
#include "trace/file/code_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

constexpr std::string_view kRoot = "SRCROOT";

// Every symptom but that of what holds.
std::span<const SymptomTraits> rules() {
  return symptoms().subspan(1);
}

std::size_t rule_of(Symptom symptom) {
  return static_cast<std::size_t>(symptom) - 1;
}

Json rule_json(const SymptomTraits& rule) {
  return {{"id", rule.name},
          {"name", rule.rule},
          {"shortDescription", {{"text", rule.description}}},
          {"defaultConfiguration", {{"level", "error"}}}};
}

// As RFC 3986 wants it.
std::string encoded(std::string_view path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string text;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                          (byte >= 'a' && byte <= 'z') || kPlain.find(c) != std::string_view::npos;
    text += is_plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return text;
}

Json location_json(const CodePlace& place) {
  const bool is_absolute = place.file.starts_with('/');
  Json file = {{"uri", (is_absolute ? "file://" : "") + encoded(place.file)}};
  if (!is_absolute) {
    file["uriBaseId"] = kRoot;
  }
  return {{"artifactLocation", file}, {"region", {{"startLine", place.line}}}};
}

// Of the operator that a zoom named, if it did, and of the module.
std::vector<CodePlace> places_of(const std::vector<Fact>& facts) {
  std::vector<CodePlace> places;
  for (const Fact& fact : facts) {
    if (fact.link && std::ranges::find(places, *fact.link) == places.end()) {
      places.push_back(*fact.link);
    }
  }
  return places;
}

Json result_json(const Report& report, std::size_t index) {
  const TensorVerdict& tensor = report.tensors[index];
  const std::string id = to_string(tensor.id);
  const std::optional<Diagnosis> diagnosis = report.root(index).diagnosis;
  const std::vector<Fact> facts = facts_of_finding(report, index);
  const std::vector<CodePlace> places = places_of(facts);
  Json location = {{"logicalLocations",
                    Json::array({{{"fullyQualifiedName", tensor.id.path}, {"kind", "module"}}})}};
  if (!places.empty()) {
    location["physicalLocation"] = location_json(places.front());
  }
  Json json = {{"ruleId", name_of(tensor.symptom())},
               {"ruleIndex", rule_of(tensor.symptom())},
               {"level", "error"},
               {"message", {{"text", finding_line(report, index) + "\n\n" + lines_of(facts)}}},
               {"locations", Json::array({location})},
               {"partialFingerprints", {{"tensor/v1", id}}},
               {"properties",
                {{"tensor", id},
                 {"firstDivergence", report.first_divergence == index},
                 {"ranks", tensor.ranks()},
                 {"signature", diagnosis ? Json(name_of(diagnosis->signature)) : Json()}}}};
  for (std::size_t i = 1; i < places.size(); ++i) {
    json["relatedLocations"].push_back(
        {{"id", i},
         {"physicalLocation", location_json(places[i])},
         {"message", {{"text", "the module that calls the operator"}}}});
  }
  return json;
}

// A notification where the verdict covers only a part: green must be a promise about the whole.
Json invocation_json(const Report& report) {
  const std::string reserved = reservation(report);
  Json json = {{"executionSuccessful", reserved.empty()}};
  if (!reserved.empty()) {
    json["toolExecutionNotifications"].push_back(
        {{"level", "error"}, {"message", {{"text", reserved}}}});
  }
  return json;
}

}  // namespace

void write_sarif(std::ostream& out, const Report& report) {
  const Json results =
      list_json(report.roots(), [&](const Root& root) { return result_json(report, root.tensor); });
  const Json run = {
      {"tool",
       {{"driver",
         {{"name", "ttrace"},
          {"version", own_version()},
          {"rules", list_json(rules(), rule_json)}}}}},
      {"originalUriBaseIds",
       {{kRoot, {{"description", {{"text", "the folder in which the program was started"}}}}}}},
      {"invocations", Json::array({invocation_json(report)})},
      {"results", results},
      {"properties",
       {{"reference", report.reference.directory}, {"candidate", report.candidate.directory}}}};
  const Json sarif = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                      {"version", "2.1.0"},
                      {"runs", Json::array({run})}};
  out << dump(sarif) << '\n';
}

}  // namespace ttrace
