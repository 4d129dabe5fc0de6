#include <ttrace/start_from.h>

void example_of_start_from(const std::vector<ttrace::NamedTensor>& parameters,
                           const ttrace::Layout& layout,
                           const ttrace::Annotations& annotations);

void example_of_start_from(const std::vector<ttrace::NamedTensor>& parameters,
                           const ttrace::Layout& layout,
                           const ttrace::Annotations& annotations) {
#include "start_from.inc"
}
