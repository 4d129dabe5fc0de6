#include "analysis/timeline/judged_ids.h"

#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace ttrace {
namespace {

using nlohmann::json;

constexpr int kTensorDepth = 3;  // of the fields of a tensor: report, tensors, tensor
constexpr std::array<std::string_view, 2> kOfReport{"first_divergence", "tensors"};
constexpr std::array<std::string_view, 4> kOfTensor{"id", "status", "finding", "cause"};

bool is_one_of(const json& name, std::span<const std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view known) { return name == known; });
}

// Whether the parser keeps what it has come to.
class Wanted {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    if (event != json::parse_event_t::key) {
      return true;
    }
    if (depth == 1) {
      in_tensors_ = value == "tensors";
      return is_one_of(value, kOfReport);
    }
    return !in_tensors_ || depth != kTensorDepth || is_one_of(value, kOfTensor);
  }

 private:
  bool in_tensors_ = false;
};

}  // namespace

JudgedIds read_judged_ids(const std::string& report) {
  const std::string text = read_text_file(report);
  JudgedIds judged;
  try {
    const json root = json::parse(text, Wanted());
    const json& first = root.at("first_divergence");
    if (!first.is_null()) {
      judged.first_divergence = first.at("id").get<std::string>();
    }
    for (const json& tensor : root.at("tensors")) {
      const json& cause = tensor.at("cause");
      judged.by_id.emplace(tensor.at("id").get<std::string>(),
                           JudgedId{tensor.at("status").get<std::string>(),
                                    tensor.at("finding").get<bool>(),
                                    cause.is_string() ? cause.get<std::string>() : ""});
    }
  } catch (const json::exception& error) {
    TTRACE_THROW(FormatError,
                 report,
                 ": this is no report of ttrace (",
                 error.what(),
                 "); judge the run again with `ttrace diff RUN --format json=",
                 report,
                 "`");
  }
  return judged;
}

}  // namespace ttrace
