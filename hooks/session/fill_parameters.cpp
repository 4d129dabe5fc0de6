#include "hooks/base/tensor_access.h"
#include "trace/place/fill.h"

#include <ttrace/error.h>
#include <ttrace/session.h>

namespace ttrace {

void fill_parameters(const std::vector<NamedTensor>& parameters,
                     const Layout& layout,
                     const Annotations& annotations,
                     std::uint64_t seed) {
  for (const NamedTensor& parameter : parameters) {
    require_readable(parameter.path, parameter.tensor, "cannot be filled");
    TTRACE_CHECK(!parameter.flat_first,
                 UsageError,
                 "parameter ",
                 parameter.path,
                 " is a flat shard, which cannot be filled; pass all of this rank's part of it");
    const ElementType type = element_type_of(parameter.tensor).value();
    const std::vector<std::int64_t> shape = shape_of(parameter.tensor);
    const Placement placement =
        annotations.placement(Kind::kParam, parameter.path, 0, shape, layout);
    std::vector<std::byte> bytes(static_cast<std::size_t>(parameter.tensor.numel()) *
                                 element_size(type));
    fill(parameter.path,
         placement,
         seed,
         default_fill_rule(parameter.path, annotations.roles()),
         type,
         bytes.data());
    wait_for_device_of(parameter.tensor);
    overwrite_tensor(parameter.tensor, bytes);
  }
}

}  // namespace ttrace
