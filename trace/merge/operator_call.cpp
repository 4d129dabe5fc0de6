#include "trace/merge/operator_call.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace ttrace {
namespace {

nlohmann::ordered_json to_json(const OperatorCall& call) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const TensorId& id : call.results) {
    results.push_back(to_string(id));
  }
  return {{"name", call.name},
          {"module", call.module},
          {"source", call.source},
          {"backward", call.backward},
          {"recompute", call.recompute},
          {"communicates", call.communicates},
          {"is_view", call.is_view},
          {"is_function", call.is_function},
          {"reads_outside", call.reads_outside},
          {"forward", call.forward ? nlohmann::ordered_json(*call.forward) : nullptr},
          {"made_by", call.made_by},
          {"results", results}};
}

OperatorCall parse_call(const nlohmann::json& json, std::size_t position) {
  OperatorCall call;
  call.name = json.at("name");
  call.module = json.at("module");
  call.source = json.at("source");
  call.backward = json.at("backward");
  call.recompute = json.at("recompute");
  call.communicates = json.at("communicates");
  call.is_view = json.at("is_view");
  call.is_function = json.at("is_function");
  call.reads_outside = json.at("reads_outside");
  call.made_by = json.at("made_by").get<std::vector<std::size_t>>();
  if (!json.at("forward").is_null()) {
    call.forward = json.at("forward").get<std::size_t>();
  }
  const std::size_t latest = std::max(
      call.forward.value_or(0), call.made_by.empty() ? 0 : *std::ranges::max_element(call.made_by));
  TTRACE_CHECK(latest < std::max<std::size_t>(position, 1),
               FormatError,
               "operator ",
               position,
               " of a list depends on operator ",
               latest,
               ", which comes after it");
  for (const auto& id : json.at("results")) {
    call.results.push_back(parse_tensor_id(id.get<std::string>()));
  }
  return call;
}

}  // namespace

std::string to_text(std::span<const OperatorCall> calls) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OperatorCall& call : calls) {
    list.push_back(to_json(call));
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<OperatorCall> parse_operator_calls(std::string_view text) {
  try {
    std::vector<OperatorCall> calls;
    for (const auto& json : nlohmann::json::parse(text)) {
      calls.push_back(parse_call(json, calls.size()));
    }
    return calls;
  } catch (const nlohmann::json::exception& error) {
    TTRACE_THROW(FormatError, "a list of operators is damaged: ", error.what());
  }
}

}  // namespace ttrace
