#include "trace/place/addends.h"

#include <sstream>

namespace ttrace {

void sum_over(Placement& placement, const Layout& layout, std::string_view axis) {
  const int size = layout.size(axis);
  placement.partial_index = placement.partial_index * size + layout.coordinate(axis);
  placement.partial_count *= size;
  placement.partial_over += placement.partial_over.empty() ? "" : ",";
  placement.partial_over += axis;
}

int addend_number(const Layout& layout, const std::string& axes) {
  Placement placement;
  std::istringstream names(axes);
  for (std::string axis; std::getline(names, axis, ',');) {
    sum_over(placement, layout, axis);
  }
  return placement.partial_index;
}

}  // namespace ttrace
