// The part of Capture that puts other values in place of the program's own: a candidate's
// (TTRACE_PASS=forced), or made-up ones (TTRACE_INPUTS=dyadic).
#include "hooks/capture/capture.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace ttrace {

std::optional<std::vector<std::byte>> Capture::given(const TensorId& id,
                                                     const TensorCopy& copy,
                                                     const Recorder::Options& options) {
  if (given_values_ == nullptr) {
    return std::nullopt;
  }
  const auto placement = recorder_.place(id, copy.shape, options);
  auto result = placement ? given_values_->value(id, *placement, copy) : std::nullopt;
  if (!result && is_floating(copy.type) && given_values_->should_have_all()) {
    count_unforced(id);
  }
  return result;
}

std::optional<std::vector<std::byte>> Capture::given(const std::vector<RowPart>& parts,
                                                     Kind kind,
                                                     const TensorCopy& copy) {
  if (given_values_ == nullptr) {
    return std::nullopt;
  }
  TensorCopy result = copy;
  for (const RowPart& part : parts) {
    TensorId id = part.value;
    id.kind = kind;
    const auto bytes =
        given(id, select_rows(copy, part), {.microbatch = part.microbatch.get(), .rows = &part});
    if (bytes) {
      put_rows(*bytes, part, result);
    }
  }
  return std::move(result.bytes);
}

at::Tensor Capture::forced_copy(const TensorId& id,
                                const std::vector<RowPart>& parts,
                                Kind kind,
                                const at::Tensor& tensor) {
  const TensorCopy copy = copy_tensor(tensor);
  const auto bytes = parts.empty() ? given(id, copy, {.microbatch = current_microbatch().get()})
                                   : given(parts, kind, copy);
  if (!bytes) {
    return tensor;
  }
  at::Tensor result = tensor.clone();  // part of the graph: gradients go through it
  overwrite_tensor(result.variable_data(), *bytes);
  return result;
}

at::Tensor Capture::forced_gradient(const GradientSlot& slot,
                                    const TensorCopy& own,
                                    const at::Tensor& gradient) {
  const auto bytes = slot.rows.empty() ? given(slot.id, own, {slot.microbatch.get(), slot.inferred})
                                       : given(slot.rows, slot.id.kind, own);
  if (!bytes) {
    return {};
  }
  at::Tensor result = at::empty_like(gradient);
  overwrite_tensor(result, *bytes);
  return result;
}

void Capture::count_unforced(const TensorId& id) {
  if (unforced_++ == 0) {
    recorder_.note(
        "the candidate has no " + to_string(id) +
        " to go on with, perhaps not alone: what follows from it is the reference's own.");
  }
}

}  // namespace ttrace
