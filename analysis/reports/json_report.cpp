#include "analysis/reports/counts_text.h"
#include "analysis/reports/facts.h"
#include "analysis/reports/report_writers.h"
#include "analysis/reports/tensor_json.h"

#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

Json side_json(const Side& side) {
  const Manifest& manifest = side.manifest;
  return {{"directory", side.directory},
          {"pass", manifest.pass},
          {"world_size", manifest.world_size},
          {"steps", manifest.steps},
          {"precision", manifest.precision},
          {"computes_in", precision_text(side)},
          {"layout", Json(manifest.layout)},
          {"model", Json(manifest.model)},
          {"data", Json(manifest.data)},
          {"versions", Json(manifest.versions)},
          {"forced_routing", manifest.forced_routing}};
}

Json counts_json(const Report& report) {
  Json counts = Json::object();
  for (const CountRow& row : rows_of_counts(report)) {
    counts[std::string(row.key)] = row.value;
  }
  return counts;
}

Json coverage_json(const std::optional<NoiseCoverage>& coverage) {
  if (!coverage) {
    return nullptr;
  }
  Json untouched = Json::object();
  for (const auto& [kind, count] : coverage->untouched) {
    untouched[std::string(name_of(kind))] = count;
  }
  return {{"tensors", coverage->tensors},
          {"reached", coverage->reached},
          {"untouched", coverage->untouched_tensors()},
          {"untouched_by_kind", untouched}};
}

// In the order of reading.
Json facts_json(const std::vector<Fact>& facts) {
  constexpr std::array<std::string_view, 3> kDepths = {"answer", "evidence", "detail"};
  return list_json(facts, [&](const Fact& fact) -> Json {
    return {{"key", fact.key},
            {"label", fact.label},
            {"text", fact.text},
            {"depth", kDepths.at(static_cast<std::size_t>(fact.depth))},
            {"number", fact.number ? number_json(*fact.number) : Json()}};
  });
}

Json rank_json(const RankError& rank) {
  Json coordinates = Json::object();
  for (const auto& [axis, coordinate] : rank.coordinates) {
    coordinates[axis] = coordinate;
  }
  return {{"rank", rank.rank},
          {"coordinates", coordinates},
          {"error", number_json(rank.error)},
          {"reference_norm", number_json(rank.reference_norm)},
          {"elements", rank.elements},
          {"is_addend", rank.is_addend}};
}

Json part_json(const PartError& part) {
  return {{"where", part.where},
          {"error", number_json(part.error)},
          {"reference_norm", number_json(part.reference_norm)}};
}

Json close_look_json(const Report& report) {
  if (!report.close_look) {
    return nullptr;
  }
  return {{"ranks", list_json(report.close_look->ranks, rank_json)},
          {"parts", list_json(report.close_look->parts, part_json)}};
}

Json named_json(const Named& named) {
  return {{"axes", named.axes},
          {"factors", named.factors},
          {"ranks", named.ranks},
          {"microbatches", named.microbatches}};
}

Json root_json(const Report& report, const Root& root) {
  const TensorVerdict& tensor = report.tensors[root.tensor];
  const bool compared = tensor.comparison.has_value();
  const std::optional<Diagnosis>& diagnosis = root.diagnosis;
  return {{"id", to_string(tensor.id)},
          {"tier", name_of(tensor.tier())},
          {"symptom", name_of(tensor.symptom())},
          {"error", compared ? number_json(tensor.comparison->error) : Json()},
          {"bound", compared ? number_json(tensor.bound()) : Json()},
          {"bound_source", tensor.bound_source()},
          {"ranks", tensor.ranks()},
          {"cause", tensor.cause()},
          {"signature", diagnosis ? Json(name_of(diagnosis->signature)) : Json()},
          {"probable_cause", diagnosis ? Json(diagnosis->sentence) : Json()},
          {"named", diagnosis ? named_json(diagnosis->named) : Json()},
          {"runner_up", runner_up_json(diagnosis)},
          {"source", root.source.sentence},
          {"facts", facts_json(facts_of_finding(report, root.tensor))}};
}

// The first of all roots, and what to do about it.
Json first_divergence_json(const Report& report) {
  if (!report.diverged()) {
    return nullptr;
  }
  Json json = root_json(report, report.root(*report.first_divergence));
  json["where_to_look"] = report.where_to_look;
  return json;
}

Json side_codes_json(const SideCodes& side) {
  return {{"format", name_of(side.format)}, {"saturated", side.saturated}, {"zero", side.zero}};
}

Json codes_json(const CodesComparison& codes, bool harmless) {
  return {{"elements", codes.elements},
          {"equal", codes.equal},
          {"reference", side_codes_json(codes.reference)},
          {"candidate", side_codes_json(codes.candidate)},
          {"scales", codes.scales},
          {"power_of_two_multiples", codes.multiples},
          {"harmless", harmless}};
}

Json calibration_json(const Report& report) {
  if (!report.calibration) {
    return nullptr;
  }
  const CalibrationUse& use = *report.calibration;
  return {{"runs", use.runs},
          {"rate", number_json(use.rate)},
          {"rate_bound", number_json(use.rate_bound)},
          {"vouched", use.vouched},
          {"alarms_shipped", use.alarms_shipped},
          {"alarms", use.alarms},
          {"shipped", use.shipped}};
}

Json routing_json(const Report& report) {
  const auto flips = report.flips();
  return flips ? Json{{"tokens", flips->tokens},
                      {"flips", flips->flips},
                      {"illegal", flips->illegal},
                      {"largest_move", number_json(flips->largest_move)},
                      {"bound", number_json(flips->bound)}}
               : Json();
}

Json unmatched_json(const UnmatchedName& name) {
  return {{"side", name_of(name.side)},
          {"path", name.path},
          {"kinds", list_json(name.kinds, [](Kind kind) { return name_of(kind); })},
          {"tensors", name.tensors},
          {"shape", name.shape},
          {"nearest", list_json(name.nearest, [](const NearName& near) -> Json {
             return {{"path", near.path}, {"shape", near.shape}};
           })}};
}

Json not_seen_json(const UnseenPart& part) {
  return {{"kind", name_of(part.kind)}, {"side", side_of(part)}, {"sentence", part.sentence}};
}

// A run that was compared only in part is never "clean".
const char* verdict_word(const Report& report) {
  if (report.diverged()) {
    return "diverged";
  }
  return report.partial()                   ? "incomplete"
         : !report.why_not_judged().empty() ? "not_judged"
         : report.undecided()               ? "undecided"
                                            : "clean";
}

}  // namespace

Json check_json(const Check& check) {
  Json json = {{"question", name_of(check.question)},
               {"tier", name_of(check.tier())},
               {"value", check.has_numbers() ? number_json(check.value) : Json()},
               {"bound", check.has_numbers() ? number_json(check.bound) : Json()},
               {"share", number_json(check.share())},
               {"holds", check.holds},
               {"detectable", number_json(check.detectable)},
               {"source", check.source}};
  for (const TermValue& each : check.terms) {
    json["terms"][std::string(name_of(each.term))] = number_json(each.value);
  }
  for (const ComponentValue& each : check.components) {
    json["components"][std::string(traits_of(each.component).name)] = number_json(each.squared);
  }
  if (!check.place.where.empty()) {
    json["where"] = check.place.where;
  }
  if (!check.place.ranks.empty()) {
    json["ranks"] = check.place.ranks;
  }
  if (!check.holds) {
    json["symptom"] = name_of(check.symptom());
    json["sentence"] = check.sentence;
  }
  return json;
}

Json header_json(const Report& report) {
  return {{"schema", 2},
          {"verdict", verdict_word(report)},
          {"headline", headline(report)},
          {"first_divergence", first_divergence_json(report)},
          {"facts", facts_json(facts_of_run(report))},
          {"close_look", close_look_json(report)},
          {"zoom", zoom_json(report.zoom)},
          {"diagnoses",
           list_json(report.roots(), [&](const Root& root) { return root_json(report, root); })},
          {"diagnoses_left_out", report.roots_left_out},
          {"counts", counts_json(report)},
          {"noise_coverage", coverage_json(report.noise_coverage)},
          {"routing", routing_json(report)},
          {"reference", side_json(report.reference)},
          {"candidate", side_json(report.candidate)},
          {"calibration", calibration_json(report)},
          {"partial", report.partial()},
          {"lacking", report.lacking},
          {"warnings", report.warnings},
          {"remarks", report.remarks},
          {"broken_off", report.broken_off},
          {"unmatched", list_json(report.unmatched, unmatched_json)},
          {"inferred_placements", report.inferred},
          {"notes", report.notes},
          {"unmet", report.unmet},
          {"not_seen", list_json(report.not_seen, not_seen_json)}};
}

Json runner_up_json(const std::optional<Diagnosis>& diagnosis) {
  if (!diagnosis || !diagnosis->runner_up) {
    return {};
  }
  return {{"signature", name_of(diagnosis->runner_up->signature)},
          {"probable_cause", diagnosis->runner_up->sentence}};
}

Json tensor_json(const TensorVerdict& tensor) {
  Json json = {{"id", to_string(tensor.id)},
               {"order", tensor.order},
               {"tier", name_of(tensor.tier())},
               {"status", name_of(tensor.status())},
               {"allowed", tensor.allowed()},
               {"finding", tensor.is_finding()},
               {"symptom", name_of(tensor.symptom())}};
  const Comparison compared = tensor.comparison.value_or(Comparison());
  const auto put = [&](const char* name, const Json& value) {
    json[name] = tensor.comparison ? value : Json();
  };
  put("error", number_json(compared.error));
  put("reference_norm", number_json(compared.reference_norm));
  put("relative_error", number_json(compared.relative_error));
  put("bound", number_json(tensor.bound()));
  json["bound_source"] = tensor.bound_source();
  put("detectable", number_json(tensor.detectable()));
  put("factor", number_json(compared.factor));
  const bool counted = !compared.is_estimate || compared.different == 0;
  put("max_difference", counted ? number_json(compared.max_difference) : Json());
  put("max_index", counted && compared.different > 0 ? Json(compared.max_index) : Json());
  put("different", counted ? Json(compared.different) : Json());
  put("elements", compared.elements);
  if (tensor.codes) {
    json["codes"] = codes_json(*tensor.codes, tensor.has(Excuse::kHarmlessScale));
  }
  json["ranks"] = tensor.ranks();
  json["cause"] = tensor.cause();
  json["checks"] = list_json(tensor.checks, check_json);
  json["excuses"] =
      list_json(tensor.excuses, [](const Excused& excused) { return name_of(excused.excuse); });
  return json;
}

void write_json(std::ostream& out, const Report& report) {
  const Json header = header_json(report);
  const char* separator = "{";
  for (const auto& [name, value] : header.items()) {
    out << std::exchange(separator, ",\n") << dump(name) << ':' << dump(value);
  }
  out << ",\n\"tensors\":";
  write_json_list(out, report.tensors, tensor_json);
  out << "}\n";
}

void write_json_lines(std::ostream& out, const Report& report) {
  const auto write = [&](const char* type, const Json& fields) {
    Json line = {{"type", type}};
    line.update(fields);
    out << dump(line) << '\n';
  };
  write("report", header_json(report));
  for (const TensorVerdict& tensor : report.tensors) {
    write("tensor", tensor_json(tensor));
  }
  write("end", {{"tensors", report.tensors.size()}});
}

}  // namespace ttrace
