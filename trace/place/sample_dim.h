// The dimension of a tensor that holds samples.
//
// A dimension of the dims grammar whose factor `b` is (`b h[tp]`, `s b h`, `(b*6) h`) holds them.
// The placement says which logical index every local one is; this says of which sample that is.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <ttrace/dims.h>
#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// Logical index l of dimension `dim` belongs to sample l / rows % count.
struct SampleDim {
  std::size_t dim = 0;
  std::int64_t count = 1;  // samples of the logical tensor
  std::int64_t rows = 1;   // consecutive indices of one sample: positions, where `b` is the slower

  bool operator==(const SampleDim&) const = default;
};

// The dimension of samples of a tensor that lies at `placement`, the result of placing `dims`.
// Nothing if no dimension has a factor `b`, or if its size does not follow.
[[nodiscard]] std::optional<SampleDim> sample_dim(const DimsSpec& dims,
                                                  const Placement& placement,
                                                  const Sizes& sizes = {});

// "0:8x6": dimension, samples, rows of each. Empty: nothing.
[[nodiscard]] std::string to_string(const std::optional<SampleDim>& samples);
// The inverse. Throws FormatError for any other text, and where the dimension is not one of the
// placement, or its size no multiple of samples times rows.
[[nodiscard]] std::optional<SampleDim> parse_sample_dim(std::string_view text,
                                                        const Placement& placement);

}  // namespace ttrace
