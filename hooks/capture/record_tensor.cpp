#include "hooks/capture/record_tensor.h"

#include "hooks/base/simulated_parts.h"
#include "hooks/base/take_snapshot.h"
#include "hooks/base/tensor_access.h"
#include "hooks/device/held_tensor.h"
#include "hooks/device/kernel_registry.h"
#include "hooks/nudge/origins.h"

#include <ttrace/error.h>

#include <ATen/ops/empty_like.h>

#include <string>

namespace ttrace {
namespace {

// A tensor of these kinds that no operator wrote to in this step is as the program has given it.
bool is_given(Kind kind) {
  switch (kind) {
    case Kind::kAmaxHistory:
    case Kind::kBuffer:
    case Kind::kData:
    case Kind::kInput:
    case Kind::kDraw:
    case Kind::kParam:
    case Kind::kParamNext:
    case Kind::kRouting:
    case Kind::kScale:
    case Kind::kStateBefore:
      return true;
    default:
      return false;
  }
}

bool lacks_noise(const Origins& origins, Kind kind, const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) {
    return false;
  }
  const auto origin = origins.of(tensor);
  return origin ? *origin == Origin::kEmpty || *origin == Origin::kOpaque : !is_given(kind);
}

}  // namespace

Snapshot values_of(const at::Tensor& tensor, const Recorder& recorder) {
  const auto own = [&recorder](const at::Tensor& part) {
    return recorder.only_counts() ? Snapshot(element_type_of(part).value(), shape_of(part))
                                  : snapshot(part);
  };
  Snapshot values = own(tensor);
  if (recorder.ranks() > 1) {
    const std::vector<at::Tensor> others = other_parts(tensor);
    TTRACE_CHECK(others.empty() || others.size() + 1 == recorder.ranks(),
                 UsageError,
                 "a tensor holds the parts of ",
                 others.size() + 1,
                 " of the ",
                 recorder.ranks(),
                 " ranks that this process simulates; simulate all of them alike");
    for (std::size_t i = 0; i + 1 < recorder.ranks(); ++i) {
      values.others.push_back(own(others.empty() ? tensor : others[i]));
    }
  }
  return values;
}

void record_tensor(Recorder& recorder,
                   const TensorId& id,
                   const at::Tensor& tensor,
                   Recorder::Options options) {
  if (!recorder.wants(id)) {
    return;
  }
  const std::string reason = unreadable(tensor);
  if (!reason.empty()) {
    recorder.note_unreadable(id, reason);
    return;
  }
  options.lacks_noise =
      recorder.origins() != nullptr && lacks_noise(*recorder.origins(), id.kind, tensor);
  if (!recorder.only_counts() && recorder.takes_device_values() &&
      kernels_of(tensor.device()) != nullptr) {
    recorder.record_on_device(
        id, element_type_of(tensor).value(), shape_of(tensor), hold_on_device(tensor), options);
    return;
  }
  Snapshot values = values_of(tensor, recorder);
  if (options.placed != nullptr) {
    values.others.clear();  // a draw of one rank
  }
  recorder.record(id, std::move(values), options);
}

at::Tensor replaced_tensor(const at::Tensor& tensor,
                           const std::optional<std::vector<std::byte>>& bytes) {
  // Sixteen bytes from the device say whether anything has to go there.
  if (!bytes || holds_on_device(tensor, *bytes)) {
    return tensor;
  }
  at::Tensor result = tensor.clone();
  overwrite_tensor(result.variable_data(), *bytes);
  return result;
}

at::Tensor replaced_gradient(const at::Tensor& gradient,
                             const std::optional<std::vector<std::byte>>& bytes) {
  if (!bytes || holds_on_device(gradient, *bytes)) {
    return {};
  }
  at::Tensor result = at::empty_like(gradient);
  overwrite_tensor(result, *bytes);
  return result;
}

}  // namespace ttrace
