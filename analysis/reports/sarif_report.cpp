#include "analysis/findings/json_text.h"
#include "analysis/reports/facts.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/report_writers.h"
#include "trace/base/version.h"
#include "trace/file/code_lines.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

constexpr std::string_view kRoot = "SRCROOT";

struct Rule {
  Symptom symptom = Symptom::kNone;
  std::string_view name;
  std::string_view description;
};

constexpr std::array kRules = {
    Rule{Symptom::kMissing, "MissingTensor", "Only one of the two runs recorded a tensor."},
    Rule{Symptom::kRanksContradict,
         "RanksContradict",
         "Ranks claim different shapes or types of one tensor."},
    Rule{Symptom::kGap, "Gap", "No rank holds some elements of a tensor."},
    Rule{Symptom::kOverlap, "Overlap", "Two shards claim the same elements of a tensor."},
    Rule{Symptom::kReplicasDisagree, "ReplicasDisagree", "Copies of a tensor differ."},
    Rule{Symptom::kAddendsMissing,
         "AddendsMissing",
         "Fewer partial sums were recorded than were declared."},
    Rule{Symptom::kShapesDiffer, "ShapesDiffer", "The two runs have tensors of different shapes."},
    Rule{Symptom::kTypesDiffer, "TypesDiffer", "The two runs have tensors of different types."},
    Rule{Symptom::kRowsDiffer, "RowsDiffer", "The two runs hold different rows of a tensor."},
    Rule{Symptom::kNonFinite, "NonFinite", "Only one of the two runs has NaN or Inf at a place."},
    Rule{Symptom::kNotEqual, "NotEqual", "Tensors that must be equal differ."},
    Rule{Symptom::kIllegalFlip,
         "OtherExperts",
         "Tokens go to other experts than round-off explains."},
    Rule{Symptom::kRecompute, "Recompute", "A recomputed value is not the first one."},
    Rule{Symptom::kSameDraws,
         "SameDraws",
         "Ranks drew the same random numbers for different parts of a tensor."},
    Rule{Symptom::kMessage, "Message", "What a rank received is not what was sent."},
    Rule{Symptom::kCollective,
         "Collective",
         "A collective returns something else than its inputs make."},
    Rule{Symptom::kNorm, "Norm", "A norm is not that of the tensors from which it is made."},
    Rule{Symptom::kMean, "Mean", "A mean is not that of the tensor from which it is made."},
    Rule{Symptom::kCast,
         "Cast",
         "A parameter is not its high-precision copy, rounded to the parameter's type."},
    Rule{Symptom::kFactor, "Factor", "A tensor is a multiple of what it should be."},
    Rule{Symptom::kSlice,
         "Slice",
         "A row, a head or a shard of a tensor differs by more than round-off explains."},
    Rule{Symptom::kOutOfBound, "OutOfBound", "A tensor differs by more than round-off explains."},
    Rule{Symptom::kOperator,
         "Operator",
         "Given the same inputs, an operator returns something else than in the reference."},
    Rule{Symptom::kSource,
         "OtherInput",
         "A module takes something else than what the module before it returned."},
    Rule{Symptom::kNotExact, "NotExact", "A sum of small integers is wrong."},
    Rule{Symptom::kTooAccurate,
         "TooAccurate",
         "A tensor is more accurate than its precision can be."},
    Rule{
        Symptom::kTooCoarse, "TooCoarse", "A tensor is less accurate than its precision explains."},
};

std::size_t rule_of(Symptom symptom) {
  const auto* const found = std::ranges::find(kRules, symptom, &Rule::symptom);
  TTRACE_CHECK(found != kRules.end(),
               InternalError,
               "no rule of SARIF describes the symptom ",
               name_of(symptom));
  return static_cast<std::size_t>(found - kRules.begin());
}

Json rule_json(const Rule& rule) {
  return {{"id", name_of(rule.symptom)},
          {"name", rule.name},
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
          {"rules", list_json(kRules, rule_json)}}}}},
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
