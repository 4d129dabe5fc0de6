#include "analysis/reports/tensor_json.h"

namespace ttrace {
namespace {

Json named_operator_json(const std::optional<NamedOperator>& named) {
  return named ? Json{{"name", named->name},
                      {"module", named->module},
                      {"source", named->source},
                      {"backward", named->backward}}
               : Json();
}

}  // namespace

Json zoom_json(const std::optional<ZoomReport>& zoom) {
  if (!zoom) {
    return nullptr;
  }
  return {{"target", zoom->target},
          {"folder", zoom->folder},
          {"operator", named_operator_json(zoom->first)},
          {"fault", zoom->first ? Json(name_of(zoom->fault)) : Json()},
          {"id", zoom->id.empty() ? Json() : Json(zoom->id)},
          {"result_of", named_operator_json(zoom->result)},
          {"what", zoom->what},
          {"signature", zoom->diagnosis ? Json(name_of(zoom->diagnosis->signature)) : Json()},
          {"probable_cause", zoom->diagnosis ? Json(zoom->diagnosis->sentence) : Json()},
          {"right_inputs", list_json(zoom->clean_inputs, named_operator_json)},
          {"wrong_inputs", list_json(zoom->wrong_inputs, named_operator_json)},
          {"reads_outside", zoom->reads_outside},
          {"only_reference", list_json(zoom->only_reference, named_operator_json)},
          {"only_candidate", list_json(zoom->only_candidate, named_operator_json)},
          {"reference_operators", zoom->reference_operators},
          {"candidate_operators", zoom->candidate_operators},
          {"compared", zoom->compared},
          {"problem", zoom->problem.empty() ? Json() : Json(zoom->problem)}};
}

}  // namespace ttrace
