#include "trace/place/sample_dim.h"

#include "trace/base/parse_integer.h"

#include <ttrace/error.h>

#include <vector>

namespace ttrace {
namespace {

constexpr std::string_view kSampleName = "b";

std::optional<std::int64_t> size_of(const DimFactor& factor, const Sizes& sizes) {
  if (factor.size) {
    return factor.size;
  }
  const auto found = sizes.find(factor.name);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

// Logical sizes of the factors of a dimension of `total` indices, of which one may be unknown.
// Empty if they do not follow.
std::vector<std::int64_t> sizes_of(const std::vector<DimFactor>& factors,
                                   std::int64_t total,
                                   const Sizes& sizes) {
  std::vector<std::int64_t> result;
  std::int64_t known = 1;
  std::optional<std::size_t> unknown;
  for (const DimFactor& factor : factors) {
    const auto size = size_of(factor, sizes);
    if (!size && unknown) {
      return {};
    }
    if (!size) {
      unknown = result.size();
    }
    result.push_back(size.value_or(1));
    known *= result.back();
  }
  if (known <= 0 || total % known != 0 || (!unknown && known != total)) {
    return {};
  }
  if (unknown) {
    result[*unknown] = total / known;
  }
  return result;
}

}  // namespace

std::optional<SampleDim> sample_dim(const DimsSpec& dims,
                                    const Placement& placement,
                                    const Sizes& sizes) {
  for (std::size_t dim = 0; dim < dims.dims.size() && dim < placement.dims.size(); ++dim) {
    const std::vector<DimFactor>& factors = dims.dims[dim];
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (factors[i].name != kSampleName) {
        continue;
      }
      const auto of_factors = sizes_of(factors, placement.dims[dim].logical_size, sizes);
      if (of_factors.empty() || of_factors[i] == 0) {
        return std::nullopt;
      }
      SampleDim samples{dim, of_factors[i], 1};
      for (std::size_t faster = i + 1; faster < factors.size(); ++faster) {
        samples.rows *= of_factors[faster];
      }
      return samples;
    }
  }
  return std::nullopt;
}

std::string to_string(const std::optional<SampleDim>& samples) {
  return samples ? std::to_string(samples->dim) + ":" + std::to_string(samples->count) + "x" +
                       std::to_string(samples->rows)
                 : std::string();
}

std::optional<SampleDim> parse_sample_dim(std::string_view text, const Placement& placement) {
  if (text.empty()) {
    return std::nullopt;
  }
  const std::size_t colon = text.find(':');
  const std::size_t times = text.find('x');
  const bool has_parts =
      colon != std::string_view::npos && times != std::string_view::npos && colon < times;
  const auto dim = has_parts ? parse_integer(text.substr(0, colon)) : std::nullopt;
  const auto count =
      has_parts ? parse_integer(text.substr(colon + 1, times - colon - 1)) : std::nullopt;
  const auto rows = has_parts ? parse_integer(text.substr(times + 1)) : std::nullopt;
  TTRACE_CHECK(dim && count && rows && *dim >= 0 && *count > 0 && *rows > 0,
               FormatError,
               "'",
               text,
               "' does not say which dimension holds samples, like 0:8x1");
  SampleDim samples{static_cast<std::size_t>(*dim), *count, *rows};
  std::int64_t product = 0;
  TTRACE_CHECK(samples.dim < placement.dims.size() &&
                   !__builtin_mul_overflow(samples.count, samples.rows, &product) &&
                   placement.dims[samples.dim].logical_size % product == 0,
               FormatError,
               "the samples '",
               text,
               "' do not fit the placement '",
               to_string(placement),
               "'");
  return samples;
}

}  // namespace ttrace
