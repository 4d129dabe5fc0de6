#include "trace/merge/copies.h"

#include "trace/place/boxes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <sstream>

namespace ttrace {
namespace {

// Elements converted at a time where values change type.
constexpr std::int64_t kConversionBlock = 1024;

std::int64_t logical_elements(std::span<const DimPlacement> dims) {
  std::int64_t count = 1;
  for (const DimPlacement& dim : dims) {
    count *= dim.logical_size;
  }
  return count;
}

double distance(double a, double b) {
  if (std::isfinite(a) && std::isfinite(b)) {
    return std::abs(a - b);
  }
  const bool equal = a == b || (std::isnan(a) && std::isnan(b));
  return equal ? 0.0 : std::numeric_limits<double>::infinity();
}

// The values of a copy, comparable with the other copies of its part. If scales differ, `scaled`
// owns the logical values in double.
struct CopyView {
  CopyView(const Copy& viewed, bool in_double) : copy(viewed) {
    if (in_double) {
      scaled.resize(copy.bytes.size() / element_size(copy.type));
      to_double(copy.type, copy.bytes.data(), std::ssize(scaled), scaled.data());
      std::for_each(scaled.begin(), scaled.end(), [this](double& value) { value *= copy.scale; });
      copy.bytes = std::as_bytes(std::span(scaled));
      copy.type = ElementType::kF64;
      copy.scale = 1.0;
    }
  }
  CopyView(const CopyView&) = delete;  // its copy refers to its own values
  CopyView& operator=(const CopyView&) = delete;

  // Address of a local element.
  [[nodiscard]] const std::byte* at(std::int64_t element) const {
    return copy.bytes.data() + to_bytes(element, copy.type);
  }

  Copy copy;
  std::vector<double> scaled;
};

std::string joined(std::span<const std::int64_t> numbers, const char* separator) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : separator) + std::to_string(numbers[i]);
  }
  return text;
}

}  // namespace

void add_differences(const Run& run, ElementType type, double scale, Differences& differences) {
  const std::size_t size = element_size(type);
  const std::byte* first = run.first;
  const std::byte* second = run.second;
  if (std::memcmp(first, second, to_bytes(run.logical.end - run.logical.begin, type)) == 0) {
    return;
  }
  for (std::int64_t i = run.logical.begin; i < run.logical.end;
       ++i, first += size, second += size) {
    if (std::memcmp(first, second, size) == 0) {
      continue;
    }
    std::array<double, 2> values{};
    to_double(type, first, 1, &values[0]);
    to_double(type, second, 1, &values[1]);
    ++differences.count;
    differences.largest =
        std::max(differences.largest, distance(values[0] * scale, values[1] * scale));
    if (i < differences.first) {
      differences.first = i;
      differences.first_value = values[0] * scale;
      differences.second_value = values[1] * scale;
    }
  }
}

Differences compare_copies(const Copy& first, const Copy& second) {
  const bool in_double = first.scale != second.scale || first.type != second.type;
  const CopyView a(first, in_double);
  const CopyView b(second, in_double);
  const ElementType type = a.copy.type;
  Differences differences;
  const bool same_arrangement =
      std::equal(first.dims.begin(), first.dims.end(), second.dims.begin(), second.dims.end());
  if (same_arrangement &&
      std::memcmp(a.at(0), b.at(0), to_bytes(local_elements(first.dims), type)) == 0) {
    return differences;
  }
  // Differently arranged copies meet in logical order.
  std::vector<std::byte> logical;
  if (!same_arrangement) {
    logical.resize(to_bytes(logical_elements(first.dims), type));
    scatter(a.copy, logical.data());
  }
  for_each_run(second.dims, [&](Offsets offsets, std::int64_t length) {
    const std::byte* const there =
        same_arrangement ? a.at(offsets.local) : logical.data() + to_bytes(offsets.logical, type);
    add_differences({{offsets.logical, offsets.logical + length}, there, b.at(offsets.local)},
                    type,
                    a.copy.scale,
                    differences);
  });
  return differences;
}

void scatter(const Copy& copy, std::byte* logical) {
  for_each_run(copy.dims, [&](Offsets offsets, std::int64_t length) {
    std::memcpy(logical + to_bytes(offsets.logical, copy.type),
                copy.bytes.data() + to_bytes(offsets.local, copy.type),
                to_bytes(length, copy.type));
  });
}

void accumulate(const Copy& copy, bool is_first_addend, double* logical) {
  std::array<double, kConversionBlock> block{};
  for_each_run(copy.dims, [&](Offsets offsets, std::int64_t length) {
    for (std::int64_t done = 0; done < length; done += kConversionBlock) {
      const std::int64_t count = std::min(kConversionBlock, length - done);
      to_double(copy.type,
                copy.bytes.data() + to_bytes(offsets.local + done, copy.type),
                count,
                block.data());
      double* const target = logical + offsets.logical + done;
      for (std::int64_t i = 0; i < count; ++i) {
        const double value = block[static_cast<std::size_t>(i)] * copy.scale;
        target[i] = is_first_addend ? value : target[i] + value;
      }
    }
  });
}

std::size_t to_bytes(std::int64_t elements, ElementType type) {
  return static_cast<std::size_t>(elements) * element_size(type);
}

std::string rank_list(const std::vector<int>& ranks) {
  const std::vector<std::int64_t> numbers(ranks.begin(), ranks.end());
  return (ranks.size() == 1 ? "rank " : "ranks ") + joined(numbers, ",");
}

std::string list_text(std::span<const std::int64_t> numbers) {
  return "[" + joined(numbers, ", ") + "]";
}

std::string element_text(std::int64_t offset, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = offset % shape[dim];
    offset /= shape[dim];
  }
  return list_text(index);
}

std::string differences_text(const Differences& differences,
                             std::int64_t elements,
                             std::pair<int, int> ranks,
                             std::span<const std::int64_t> shape,
                             double largest) {
  std::ostringstream text;
  text.precision(9);
  if (shape.empty()) {
    text << differences.first_value << " on rank " << ranks.first << " and "
         << differences.second_value << " on rank " << ranks.second;
    return text.str();
  }
  text << differences.count << " of " << elements << " elements differ between ranks "
       << ranks.first << " and " << ranks.second << ", first at "
       << element_text(differences.first, shape) << " (" << differences.first_value << " and "
       << differences.second_value << "); largest difference " << largest;
  return text.str();
}

}  // namespace ttrace
