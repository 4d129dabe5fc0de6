#include "trace/place/fill.h"

#include "trace/base/random.h"
#include "trace/base/role.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace ttrace {
namespace {

// Values converted at a time.
constexpr std::int64_t kBlock = 1024;

// Every (path, seed) has a splitmix64 sequence of its own, whose element `index` is found directly.
std::uint64_t stream_of(std::string_view path, std::uint64_t seed) {
  return scramble(XXH3_64bits(path.data(), path.size()) ^ random_bits(seed));
}

double value_at(std::uint64_t stream, std::uint64_t index, const FillRule& rule) {
  const std::uint64_t random = random_bits(stream, index) >> 32;
  const auto choices = 2 * static_cast<std::uint64_t>(rule.range) + 1;
  const auto k = static_cast<std::int64_t>(random * choices >> 32) - rule.range;
  return rule.center + std::ldexp(static_cast<double>(k), rule.exponent);
}

// All 2 * range + 1 values are tried: on a grid that coarsens away from zero the ends alone prove
// nothing about what lies between.
void check_rule(std::string_view path, const FillRule& rule) {
  TTRACE_CHECK(rule.range >= 0 && rule.range <= 128,
               UsageError,
               "the fill rule of ",
               path,
               " has range ",
               rule.range,
               "; it must lie in [0, 128] to fit BF16's 8 significant bits");
  for (int k = -rule.range; k <= rule.range; ++k) {
    const double value = rule.center + std::ldexp(static_cast<double>(k), rule.exponent);
    std::uint16_t rounded = 0;
    double back = 0.0;
    from_double(ElementType::kBF16, &value, 1, &rounded);
    to_double(ElementType::kBF16, &rounded, 1, &back);
    TTRACE_CHECK(std::isfinite(value) && back == value,
                 UsageError,
                 "the fill rule of ",
                 path,
                 " (center ",
                 rule.center,
                 ", exponent ",
                 rule.exponent,
                 ", range ",
                 rule.range,
                 ") gives ",
                 value,
                 ", which BF16 cannot hold; use a larger exponent or a smaller range");
  }
}

}  // namespace

FillRule default_fill_rule(std::string_view path, const std::map<std::string, std::string>& roles) {
  constexpr std::string_view kWeight = ".weight";
  if (path.ends_with(kWeight)) {
    const std::string_view owner = path.substr(0, path.size() - kWeight.size());
    const std::size_t dot = owner.rfind('.');
    const std::string_view module = owner.substr(dot == std::string_view::npos ? 0 : dot + 1);
    if (fits_any(patterns_of(Role::kNorm, roles), module)) {
      return {1.0, -7, 16};
    }
  }
  return {};
}

double fill_value(std::string_view path,
                  std::uint64_t index,
                  std::uint64_t seed,
                  const FillRule& rule) {
  check_rule(path, rule);
  return value_at(stream_of(path, seed), index, rule);
}

void fill(std::string_view path,
          const Placement& placement,
          std::uint64_t seed,
          const FillRule& rule,
          ElementType type,
          void* target) {
  TTRACE_CHECK(is_floating(type),
               UsageError,
               "cannot fill ",
               path,
               " of element type ",
               name_of(type),
               "; only floating types have start values");
  TTRACE_CHECK(placement.partial_count == 1 && placement.scale == 1.0,
               UsageError,
               "cannot fill ",
               path,
               " placed as \"",
               to_string(placement),
               "\"; start values must be neither partial sums nor scaled");
  check_rule(path, rule);
  const std::uint64_t stream = stream_of(path, seed);
  const std::int64_t elements =
      placement.flat ? placement.flat->count : local_elements(placement.dims);
  if (elements == 0) {
    return;  // `target` may be null
  }
  auto* const bytes = static_cast<std::byte*>(target);
  const auto bytes_of = [type](std::int64_t count) {
    return static_cast<std::size_t>(count) * element_size(type);
  };
  std::memset(bytes, 0, bytes_of(elements));  // zero in every floating type
  std::array<double, kBlock> values{};
  for_each_run(placement, [&](Offsets offsets, std::int64_t length) {
    for (std::int64_t done = 0; done < length; done += kBlock) {
      const std::int64_t count = std::min(kBlock, length - done);
      for (std::int64_t i = 0; i < count; ++i) {
        values[static_cast<std::size_t>(i)] =
            value_at(stream, static_cast<std::uint64_t>(offsets.logical + done + i), rule);
      }
      from_double(type, values.data(), count, bytes + bytes_of(offsets.local + done));
    }
  });
}

}  // namespace ttrace
