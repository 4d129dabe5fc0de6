#include "analysis/reports/explain.h"
#include "analysis/reports/tensor_json.h"

#include <ostream>

namespace ttrace {
namespace {

Json check_json(const BoundCheck& check) {
  const bool has_numbers = check.kind != CheckKind::kStructure;
  return {{"check", name_of(check.kind)},
          {"tier", name_of(check.tier)},
          {"value", has_numbers ? number_json(check.value) : Json()},
          {"bound", has_numbers ? number_json(check.bound) : Json()},
          {"share", has_numbers ? number_json(check.share) : Json()},
          {"holds", check.holds},
          {"rules", check.rules},
          {"where", check.where},
          {"ranks", check.ranks},
          {"source", check.source}};
}

Json step_json(const ArithmeticStep& step) {
  return {{"check", name_of(step.kind)},
          {"what", step.what},
          {"formula", step.formula},
          {"numbers", step.numbers},
          {"value", number_json(step.value)}};
}

Json upstream_json(const Upstream& before) {
  return {{"id", before.id},
          {"status", name_of(before.status)},
          {"share", number_json(before.share)},
          {"relation", before.relation}};
}

Json seen_json(const SmallestSeen& seen) {
  return {{"check", name_of(seen.kind)},
          {"relative", number_json(seen.relative)},
          {"where", seen.where}};
}

template <class T>
Json list_json(const std::vector<T>& values, Json (*convert)(const T&)) {
  Json list = Json::array();
  for (const T& value : values) {
    list.push_back(convert(value));
  }
  return list;
}

}  // namespace

void write_json(std::ostream& out, const Explanation& explanation) {
  Json json = tensor_json(explanation.tensor);
  const bool first = explanation.is_first_divergence;
  json["sentence"] = explanation.sentence;
  json["is_first_divergence"] = first;
  json["checks"] = list_json(explanation.checks, check_json);
  json["arithmetic"] = list_json(explanation.arithmetic, step_json);
  json["signature"] =
      explanation.diagnosis ? Json(name_of(explanation.diagnosis->signature)) : Json();
  json["probable_cause"] = explanation.diagnosis ? Json(explanation.diagnosis->sentence) : Json();
  json["where_to_look"] = first ? Json(explanation.where_to_look) : Json();
  json["before"] = explanation.before;
  json["wrong_before"] = explanation.wrong_before;
  json["upstream"] = list_json(explanation.upstream, upstream_json);
  json["smallest_seen"] = list_json(explanation.smallest_seen, seen_json);
  out << dump(json) << '\n';
}

}  // namespace ttrace
