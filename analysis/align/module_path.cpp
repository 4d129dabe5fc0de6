#include "analysis/align/module_path.h"

#include "trace/base/split.h"

namespace ttrace {

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::vector<std::string> path_parts(std::string_view path) {
  const std::vector<std::string_view> parts = split_at(path, '.');
  return {parts.begin(), parts.end()};
}

bool lies_in(const std::string& path, const std::string& module) {
  return module.empty() || path == module || path.starts_with(module + ".");
}

std::vector<std::string> outer_paths(std::string path) {
  std::vector<std::string> paths;
  for (std::size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
    path.resize(dot);
    paths.push_back(path);
  }
  return paths;
}

std::string pattern_of(std::string_view path) {
  std::string pattern;
  for (const std::string& part : path_parts(path)) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern.append(pattern.empty() ? "" : ".").append(number ? "*" : part);
  }
  return pattern;
}

TensorId weight_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".weight"};
}

TensorId bias_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".bias"};
}

TensorId as_kind(TensorId id, Kind kind) {
  id.kind = kind;
  return id;
}

bool is_first_forward(const TensorId& id) {
  return !id.recompute && (id.kind == Kind::kOutput || id.kind == Kind::kInput);
}

bool same_microbatch(const TensorId& left, const TensorId& right) {
  return left.step == right.step && left.microbatch == right.microbatch;
}

}  // namespace ttrace
