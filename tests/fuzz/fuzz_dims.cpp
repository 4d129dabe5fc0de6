// Input: a dims string, then, after a line break, numbers separated by blanks: the size and
// coordinate of axis tp, of axis cp, and the local shape.
#include "property.h"

#include <ttrace/dims.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace {

using namespace ttrace;

struct Placed {
  Layout layout;
  std::vector<std::int64_t> shape;
};

Placed parse_numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = 0; numbers.size() < 12 && in >> number;) {
    numbers.push_back(number);
  }
  numbers.resize(std::max<std::size_t>(numbers.size(), 4), 1);
  Placed placed;
  const auto size = [&](std::size_t i) { return 1 + static_cast<int>(numbers[i] & 7); };
  const auto coordinate = [&](std::size_t i) {
    return static_cast<int>(static_cast<std::uint64_t>(numbers[i + 1]) %
                            static_cast<std::uint64_t>(size(i)));
  };
  placed.layout.add("tp", size(0), coordinate(0)).add("sp", size(0), coordinate(0), "tp");
  placed.layout.add("cp", size(2), coordinate(2));
  for (std::size_t i = 4; i < numbers.size(); ++i) {
    placed.shape.push_back(std::max<std::int64_t>(numbers[i], 0));
  }
  return placed;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  fuzz::allow_refusal([&] {
    const DimsSpec dims = parse_dims(text.substr(0, line));
    const std::string printed = to_string(dims);
    fuzz::require(to_string(parse_dims(printed)) == printed, "dims are read back as others");
    const Placed placed = parse_numbers(std::string(text.substr(line)));
    const Placement placement = place(dims, placed.shape, placed.layout);
    fuzz::require(placement.local_shape() == placed.shape, "a placement is for another shape");
    try {
      validate(placement);
    } catch (const FormatError& error) {
      fuzz::require(false, "place() claims what validate() refuses: " + error.message());
    }
    fuzz::require(parse_placement(to_string(placement)) == placement, "placements differ");
  });
  return 0;
}
