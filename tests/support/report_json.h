// What tests ask of a report in JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>

namespace ttrace::testing {

// The check of a tensor that asks `question`; null if nobody asked it.
[[nodiscard]] inline nlohmann::json asked(const nlohmann::json& tensor, std::string_view question) {
  for (const auto& check : tensor.at("checks")) {
    if (check.at("question") == question) {
      return check;
    }
  }
  return nullptr;
}

}  // namespace ttrace::testing
