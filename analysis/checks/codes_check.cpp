#include "analysis/checks/codes_check.h"

#include "analysis/align/tensor_pair.h"
#include "analysis/align/values.h"
#include "analysis/checks/gradient_factor.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace ttrace {
namespace {

// Coarser ones come later: the numbers of E2M1 are numbers of the others, too.
constexpr std::array kFormats = {ElementType::kE4M3, ElementType::kE5M2, ElementType::kE2M1};
using PerFormat = std::array<bool, kFormats.size()>;
// What storing a value may take it from its code: the largest relative rounding of BF16, half a
// unit in the last place. Half of it loses codes that a program has, and from 1/16 on a number of
// E4M3 that lies between two of E5M2 would be either.
constexpr double kOffCode = 0x1p-8;

using Shape = std::vector<std::int64_t>;

// A run of elements that lie one behind the other, of one side.
class Row {
 public:
  explicit Row(std::size_t size) : values_(size), quotients_(size), bytes_(size) {
    for (std::vector<double>& codes : codes_) {
      codes.resize(size);
    }
  }

  // `scale_of(i)`: number of the i-th element's scale. Codes are those of `formats` alone.
  template <class ScaleOf>
  void read(const MergeResult& tensor,
            std::int64_t first,
            const std::vector<double>& scales,
            const ScaleOf& scale_of,
            const PerFormat& formats) {
    const auto size = std::ssize(values_);
    to_double(tensor.type, advance(tensor.bytes.data(), tensor.type, first), size, values_.data());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      quotients_[i] = values_[i] == 0.0 ? 0.0 : values_[i] / scales[scale_of(i)];
    }
    for (std::size_t format = 0; format < kFormats.size(); ++format) {
      if (formats.at(format)) {
        from_double(kFormats.at(format), quotients_.data(), size, bytes_.data());
        to_double(kFormats.at(format), bytes_.data(), size, codes_.at(format).data());
      }
    }
  }
  [[nodiscard]] double code(std::size_t format, std::size_t i) const {
    return codes_.at(format)[i];
  }
  [[nodiscard]] bool is_code(std::size_t format, std::size_t i) const {
    const double code = codes_.at(format)[i];
    const double quotient = quotients_[i];
    return code == quotient || (std::isnan(code) && std::isnan(quotient)) ||
           std::abs(code - quotient) <= kOffCode * std::abs(code);
  }

 private:
  std::vector<double> values_;
  std::vector<double> quotients_;
  std::vector<std::byte> bytes_;
  std::array<std::vector<double>, kFormats.size()> codes_;  // nearest numbers, by format
};

// Counts for the formats that the side may still have; counts of other formats mean nothing.
struct SideCounts {
  PerFormat is_format = {true, true, true};
  std::array<std::int64_t, kFormats.size()> saturated{};
  std::array<std::int64_t, kFormats.size()> zero{};

  void add(const Row& row, std::size_t size) {
    for (std::size_t format = 0; format < kFormats.size(); ++format) {
      const double largest = format_of(kFormats.at(format)).largest;
      for (std::size_t i = 0; is_format.at(format) && i < size; ++i) {
        const double code = row.code(format, i);
        is_format.at(format) = row.is_code(format, i);
        saturated.at(format) += std::abs(code) == largest ? 1 : 0;
        zero.at(format) += code == 0.0 ? 1 : 0;
      }
    }
  }
  [[nodiscard]] bool is_any() const { return std::ranges::count(is_format, true) > 0; }
  // The coarsest that it may be. Requires: is_any().
  [[nodiscard]] std::size_t format() const {
    const auto last = std::find(is_format.rbegin(), is_format.rend(), true);
    return static_cast<std::size_t>(is_format.rend() - last) - 1;
  }
};

struct PairCounts {
  SideCounts reference;
  SideCounts candidate;
  std::array<std::int64_t, kFormats.size()> equal{};

  // `power_of(i)`: to take out of the candidate's code.
  template <class PowerOf>
  void add(const Row& expected, const Row& found, const PowerOf& power_of, std::size_t size) {
    reference.add(expected, size);
    candidate.add(found, size);
    for (std::size_t format = 0; format < kFormats.size(); ++format) {
      const bool both = reference.is_format.at(format) && candidate.is_format.at(format);
      for (std::size_t i = 0; both && i < size; ++i) {
        const double left = expected.code(format, i);
        const double right = found.code(format, i) * power_of(i);
        equal.at(format) += left == right || (std::isnan(left) && std::isnan(right)) ? 1 : 0;
      }
    }
  }
  [[nodiscard]] bool are_codes() const { return reference.is_any() && candidate.is_any(); }
};

// Number of the first scale of the row with that number; a row is an index of all dimensions but
// the last.
std::size_t first_scale(std::int64_t row,
                        const Shape& values,
                        const Shape& scales,
                        const Shape& blocks) {
  std::int64_t position = 0;
  std::int64_t stride = scales.back();
  for (std::size_t dim = values.size() - 1; dim-- > 0;) {
    position += row % values[dim] / blocks[dim] * stride;
    row /= values[dim];
    stride *= scales[dim];
  }
  return static_cast<std::size_t>(position);
}

// The scales of both sides, and the power of two by which the candidate's exceed the reference's; 1
// if there is no such power.
struct Scales {
  std::vector<double> reference;
  std::vector<double> candidate;
  std::vector<double> powers;
  bool are_powers_of_two = true;
};

Scales scales_of(const Quantised& reference, const Quantised& candidate) {
  Scales scales{values_of(reference.scales).data, values_of(candidate.scales).data, {}};
  for (std::size_t i = 0; i < scales.reference.size(); ++i) {
    const double ratio = scales.candidate[i] / scales.reference[i];
    const bool is_power = is_power_of_two(ratio);
    scales.are_powers_of_two = scales.are_powers_of_two && is_power;
    scales.powers.push_back(is_power ? ratio : 1.0);
  }
  return scales;
}

PairCounts count(const Quantised& reference,
                 const Quantised& candidate,
                 const Scales& scales,
                 const Shape& blocks) {
  const Shape& shape = reference.values.shape;
  const bool is_one = scales.powers.size() == 1;
  const std::int64_t width = shape.empty() ? 1 : shape.back();
  const std::int64_t rows = width == 0 ? 0 : element_count(shape) / width;
  Row expected(static_cast<std::size_t>(width));
  Row found(static_cast<std::size_t>(width));
  PairCounts counts;
  for (std::int64_t row = 0; row < rows && counts.are_codes(); ++row) {
    const std::size_t first = is_one ? 0 : first_scale(row, shape, reference.scales.shape, blocks);
    const auto scale_of = [&](std::size_t i) {
      return is_one ? 0 : first + i / static_cast<std::size_t>(blocks.back());
    };
    expected.read(
        reference.values, row * width, scales.reference, scale_of, counts.reference.is_format);
    found.read(
        candidate.values, row * width, scales.candidate, scale_of, counts.candidate.is_format);
    counts.add(
        expected,
        found,
        [&](std::size_t i) { return scales.powers[scale_of(i)]; },
        static_cast<std::size_t>(width));
  }
  return counts;
}

// Along one dimension.
std::optional<std::int64_t> block_size(std::int64_t elements, std::int64_t blocks) {
  constexpr std::array<std::int64_t, 4> kKnown = {1, 16, 32, 128};
  if (blocks < 1 || blocks > elements) {
    return std::nullopt;
  }
  for (const std::int64_t size : kKnown) {
    if ((elements + size - 1) / size == blocks) {
      return size;
    }
  }
  return elements % blocks == 0 ? std::optional(elements / blocks) : std::nullopt;
}

}  // namespace

std::optional<std::vector<std::int64_t>> block_sizes(const Shape& values, const Shape& scales) {
  if (element_count(scales) == 1) {
    return values;
  }
  if (values.size() != scales.size()) {
    return std::nullopt;
  }
  std::vector<std::int64_t> sizes;
  for (std::size_t dim = 0; dim < values.size(); ++dim) {
    const auto size = block_size(values[dim], scales[dim]);
    if (!size) {
      return std::nullopt;
    }
    sizes.push_back(*size);
  }
  return sizes;
}

std::optional<CodesComparison> compare_codes(const Quantised& reference,
                                             const Quantised& candidate) {
  const auto has_all = [](const Quantised& side) {
    return side.values.has_tensor() && side.scales.has_tensor() && is_floating(side.values.type) &&
           is_floating(side.scales.type);
  };
  if (!has_all(reference) || !has_all(candidate) ||
      reference.values.shape != candidate.values.shape ||
      reference.scales.shape != candidate.scales.shape) {
    return std::nullopt;
  }
  const auto blocks = block_sizes(reference.values.shape, reference.scales.shape);
  if (!blocks) {
    return std::nullopt;
  }
  const Scales scales = scales_of(reference, candidate);
  const PairCounts counts = count(reference, candidate, scales, *blocks);
  const SideCounts& left = counts.reference;
  const SideCounts& right = counts.candidate;
  if (!counts.are_codes()) {
    return std::nullopt;
  }
  std::size_t of_reference = left.format();
  std::size_t of_candidate = right.format();
  for (std::size_t format = 0; format < kFormats.size(); ++format) {
    if (of_reference != of_candidate && left.is_format.at(format) && right.is_format.at(format)) {
      of_reference = format;
      of_candidate = format;
    }
  }
  CodesComparison result;
  result.elements = element_count(reference.values.shape);
  result.reference = {
      kFormats.at(of_reference), left.saturated.at(of_reference), left.zero.at(of_reference)};
  result.candidate = {
      kFormats.at(of_candidate), right.saturated.at(of_candidate), right.zero.at(of_candidate)};
  result.equal = of_reference == of_candidate ? counts.equal.at(of_reference) : 0;
  result.scales = std::ssize(scales.powers);
  result.multiples = result.scales - std::ranges::count(scales.powers, 1.0);
  result.are_powers_of_two = scales.are_powers_of_two;
  return result;
}

std::optional<CodesComparison> codes_of(const MergeResult& reference,
                                        const MergeResult& candidate,
                                        const Match& scale) {
  if (scale.reference.empty() || scale.candidate.empty()) {
    return std::nullopt;
  }
  const MergeResult of_reference = merge(scale.reference);
  const MergeResult of_candidate = merge(scale.candidate);
  return compare_codes({reference, of_reference}, {candidate, of_candidate});
}

bool keep_codes(const CodesComparison& codes) {
  constexpr double kFew = 1e-3;
  const double few = kFew * static_cast<double>(codes.elements);
  const auto no_more = [&](std::int64_t reference, std::int64_t candidate) {
    return static_cast<double>(candidate) <= static_cast<double>(reference) + few;
  };
  return codes.are_powers_of_two && codes.multiples > 0 &&
         codes.reference.format == codes.candidate.format &&
         no_more(codes.reference.saturated, codes.candidate.saturated) &&
         no_more(codes.reference.zero, codes.candidate.zero);
}

Check format_check(const CodesComparison& codes) {
  if (codes.reference.format == codes.candidate.format) {
    return passed(Question::kFormat, "exact (structure)");
  }
  return failed(Question::kFormat,
                fmt::format("its codes are {}, but {} in the reference",
                            format_text(codes.candidate.format),
                            format_text(codes.reference.format)));
}

}  // namespace ttrace
