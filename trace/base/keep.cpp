#include "trace/base/keep.h"

#include "trace/base/table_of_enum.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace ttrace {
namespace {

struct KeepName {
  Keep keep;
  std::string_view name;
};

constexpr std::array kNames = {KeepName{Keep::kBytes, "bytes"}, KeepName{Keep::kSketch, "sketch"}};
static_assert(has_a_row_for_each(kNames, &KeepName::keep, Keep::kSketch));

}  // namespace

std::string_view name_of(Keep keep) {
  return kNames.at(static_cast<std::size_t>(keep)).name;
}

std::optional<Keep> find_keep(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &KeepName::name);
  return found == kNames.end() ? std::nullopt : std::optional(found->keep);
}

}  // namespace ttrace
