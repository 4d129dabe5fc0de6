#include "analysis/align/model_numbers.h"

#include <cmath>
#include <cstdlib>

namespace ttrace {

std::optional<double> model_number(const Section& model, std::string_view key) {
  const auto found = model.find(std::string(key));
  if (found == model.end()) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  const bool whole = end != found->second.c_str() && *end == '\0';
  return whole ? std::optional(value) : std::nullopt;
}

std::int64_t head_size(const Section& model) {
  const double heads = model_number(model, model_keys::kHeads).value_or(0.0);
  const double hidden = model_number(model, model_keys::kHidden).value_or(0.0);
  return heads > 1.0 && std::fmod(hidden, heads) == 0.0 ? std::llround(hidden / heads) : 0;
}

}  // namespace ttrace
