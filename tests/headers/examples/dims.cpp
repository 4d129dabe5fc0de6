#include <ttrace/dims.h>

ttrace::Placement example_of_dims(const std::vector<std::int64_t>& local_shape,
                                  const ttrace::Layout& layout);

ttrace::Placement example_of_dims(const std::vector<std::int64_t>& local_shape,
                                  const ttrace::Layout& layout) {
#include "dims.inc"
  return placement;
}
