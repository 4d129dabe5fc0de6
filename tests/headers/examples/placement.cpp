#include <ttrace/placement.h>

ttrace::Placement example_of_placement(const std::vector<std::int64_t>& shape);

ttrace::Placement example_of_placement(const std::vector<std::int64_t>& shape) {
#include "placement.inc"
  return placement;
}
