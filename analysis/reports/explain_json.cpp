#include "analysis/reports/explain.h"
#include "analysis/reports/tensor_json.h"

#include <ostream>

namespace ttrace {
namespace {

Json upstream_json(const Upstream& before) {
  return {{"id", before.id},
          {"status", name_of(before.status)},
          {"share", number_json(before.share)},
          {"relation", before.relation}};
}

}  // namespace

void write_json(std::ostream& out, const Explanation& explanation) {
  Json json = tensor_json(explanation.tensor);
  const bool first = explanation.is_first_divergence;
  json["sentence"] = explanation.sentence;
  json["is_first_divergence"] = first;
  json["checks"] = Json::array();
  for (std::size_t i = 0; i < explanation.checks.size(); ++i) {
    json["checks"].push_back(check_json(explanation.checks[i]));
    json["checks"].back()["rules"] = explanation.ruling == i;
  }
  json["signature"] =
      explanation.diagnosis ? Json(name_of(explanation.diagnosis->signature)) : Json();
  json["probable_cause"] = explanation.diagnosis ? Json(explanation.diagnosis->sentence) : Json();
  json["runner_up"] = runner_up_json(explanation.diagnosis);
  json["where_to_look"] = first ? Json(explanation.where_to_look) : Json();
  json["before"] = explanation.before;
  json["wrong_before"] = explanation.wrong_before;
  json["upstream"] = list_json(explanation.upstream, upstream_json);
  out << dump(json) << '\n';
}

}  // namespace ttrace
