#include "analysis/checks/broken_ties.h"

#include "trace/base/kind.h"

#include <ttrace/error.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>

namespace ttrace {
namespace {

using Ties = std::map<std::string, std::string>;  // first name by further name

Ties ties_of(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / "ties.json";
  std::ifstream file(path);
  if (!file) {
    return {};
  }
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  TTRACE_CHECK(json.is_object(),
               FormatError,
               path.string(),
               ": this is no object of names; remove the trace and run the pass again");
  Ties ties;
  for (const auto& [name, first] : json.items()) {
    ties.emplace(name, first.is_string() ? first.get<std::string>() : std::string());
  }
  return ties;
}

}  // namespace

void explain_ties(const std::string& reference,
                  const std::string& candidate,
                  std::span<TensorVerdict> tensors) {
  const Ties of_reference = ties_of(reference);
  const Ties of_candidate = ties_of(candidate);
  for (TensorVerdict& tensor : tensors) {
    const Ties& ties = tensor.is_in_reference ? of_candidate : of_reference;
    const auto tie = ties.find(tensor.id.path);
    if (tie == ties.end() || !is_of_parameter(tensor.id.kind)) {
      continue;
    }
    for (Check& check : tensor.checks) {
      if (check.question == Question::kPresence && !check.holds) {
        check.sentence += fmt::format(
            ". {} is the same tensor as {} in the {}, and a tensor of its own in the {}: {}",
            tie->first,
            tie->second,
            tensor.is_in_reference ? "candidate" : "reference",
            tensor.is_in_reference ? "reference" : "candidate",
            tensor.is_in_reference
                ? "the reference does not tie them"
                : "the tie is broken (parallelize_module and to_empty make new Parameters)");
      }
    }
  }
}

}  // namespace ttrace
