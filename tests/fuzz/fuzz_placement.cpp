#include "property.h"

#include <ttrace/placement.h>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ttrace;
  fuzz::allow_refusal([&] {
    const Placement placement = parse_placement(fuzz::text_of(data, size));
    validate(placement);
    const std::string printed = to_string(placement);
    fuzz::require(parse_placement(printed) == placement, "a placement is read back as another");
    fuzz::require(to_string(parse_placement(printed)) == printed, "printing is not stable");
  });
  return 0;
}
