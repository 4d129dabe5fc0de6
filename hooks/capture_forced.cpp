// The part of Capture that puts a candidate's values in place of the program's own (TTRACE_PASS=forced).
#include "capture.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace ttrace {

std::optional<std::vector<std::byte>> Capture::candidates(const TensorId& id,
                                                          const TensorCopy& copy,
                                                          const Recorder::Options& options) {
  if (forced_values_ == nullptr) {
    return std::nullopt;
  }
  const auto placement = recorder_.place(id, copy.shape, options);
  auto result = placement ? forced_values_->value(id, *placement, copy) : std::nullopt;
  if (!result && is_floating(copy.type)) {
    count_unforced(id);
  }
  return result;
}

std::optional<std::vector<std::byte>> Capture::candidates(const std::vector<RowPart>& parts,
                                                          Kind kind,
                                                          const TensorCopy& copy) {
  if (forced_values_ == nullptr) {
    return std::nullopt;
  }
  TensorCopy result = copy;
  for (const RowPart& part : parts) {
    TensorId id = part.value;
    id.kind = kind;
    const auto bytes = candidates(
        id, select_rows(copy, part), {.microbatch = part.microbatch.get(), .rows = &part});
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
  const auto bytes = parts.empty()
                         ? candidates(id, copy, {.microbatch = current_microbatch().get()})
                         : candidates(parts, kind, copy);
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
  const auto bytes = slot.rows.empty()
                         ? candidates(slot.id, own, {slot.microbatch.get(), slot.inferred})
                         : candidates(slot.rows, slot.id.kind, own);
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
