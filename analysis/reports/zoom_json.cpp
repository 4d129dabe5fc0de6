#include "analysis/reports/zoom_text.h"

#include <vector>

namespace ttrace {
namespace {

Json operator_json(const std::optional<NamedOperator>& named) {
  return named ? Json{{"name", named->name},
                      {"module", named->module},
                      {"source", named->source},
                      {"backward", named->backward}}
               : Json();
}

Json list_json(const std::vector<NamedOperator>& list) {
  Json result = Json::array();
  for (const NamedOperator& named : list) {
    result.push_back(operator_json(named));
  }
  return result;
}

}  // namespace

Json zoom_json(const std::optional<ZoomReport>& zoom) {
  if (!zoom) {
    return nullptr;
  }
  return {{"target", zoom->target},
          {"folder", zoom->folder},
          {"operator", operator_json(zoom->first)},
          {"fault", zoom->first ? Json(name_of(zoom->fault)) : Json()},
          {"id", zoom->id.empty() ? Json() : Json(zoom->id)},
          {"result_of", operator_json(zoom->result)},
          {"what", zoom->what},
          {"signature", zoom->diagnosis ? Json(name_of(zoom->diagnosis->signature)) : Json()},
          {"probable_cause", zoom->diagnosis ? Json(zoom->diagnosis->sentence) : Json()},
          {"right_inputs", list_json(zoom->clean_inputs)},
          {"wrong_inputs", list_json(zoom->wrong_inputs)},
          {"reads_outside", zoom->reads_outside},
          {"only_reference", list_json(zoom->only_reference)},
          {"only_candidate", list_json(zoom->only_candidate)},
          {"reference_operators", zoom->reference_operators},
          {"candidate_operators", zoom->candidate_operators},
          {"compared", zoom->compared},
          {"problem", zoom->problem.empty() ? Json() : Json(zoom->problem)}};
}

}  // namespace ttrace
