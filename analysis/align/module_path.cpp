#include "analysis/align/module_path.h"

namespace ttrace {

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

TensorId weight_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".weight"};
}

TensorId bias_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".bias"};
}

}  // namespace ttrace
