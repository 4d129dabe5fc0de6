// The part of Capture that follows sums over ranks and other communication.
#include "hooks/base/take_snapshot.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/record_tensor.h"
#include "trace/sums/slices.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Of a part, weighted: the norm of each index of its last dimension, or the norm of a vector.
at::Tensor norms_of(const at::Tensor& part, double weight) {
  std::vector<std::int64_t> dims;  // all but the last
  for (std::int64_t dim = 0; dim + 1 < part.dim() && part.size(-1) <= kMostSlices; ++dim) {
    dims.push_back(dim);
  }
  return (dims.empty() ? part.norm(2, at::kDouble) : part.norm(2, dims, false, at::kDouble))
      .mul_(weight);
}

// The norms of the addend's parts. They are computed now, in the order of the current stream, and
// stay on the device until somebody asks.
std::function<std::vector<Snapshot>()> norms_of(const DispatchedSum& sum) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& part : sum.parts) {
    norms.push_back(norms_of(part, sum.weight));
  }
  const c10::Device device = norms.front().device();
  std::shared_ptr<c10::Event> made;  // the caller may be on another stream
  if (!device.is_cpu()) {
    made = std::make_shared<c10::Event>(device.type());
    made->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return [norms = std::move(norms), device, made] {
    std::vector<Snapshot> result;
    for (const at::Tensor& norm : norms) {
      if (!unreadable(norm).empty()) {
        continue;  // a graph is being recorded
      }
      if (made != nullptr) {
        const c10::impl::VirtualGuardImpl guard(device.type());
        const c10::Stream stream = guard.getStream(device);
        made->block(stream);
        guard.recordDataPtrOnStream(norm.storage().data_ptr(), stream);
      }
      result.push_back(snapshot(norm));
    }
    return result;
  };
}

}  // namespace

std::optional<TensorId> Capture::collective_begins(const CollectiveCall& call,
                                                   const at::Tensor& input) {
  if (call.size == 1) {
    return std::nullopt;
  }
  contain([&] { announce_sum(call, input); });
  std::optional<TensorId> result;
  if (environment_.collectives) {
    contain([&] { result = record_collective(call, input); });
  }
  return result;
}

TensorId Capture::record_collective(const CollectiveCall& call, const at::Tensor& input) {
  CollectiveCall kept = call;
  const OpenScope* scope = innermost_scope();
  kept.module = scope != nullptr ? scope->path : in_backward() ? "backward" : "";
  const std::string path = call.group + "." + std::to_string(collectives_[call.group]++);
  TensorId id = recorder_.next_id({Kind::kCollectiveInput, path}, nullptr);
  // Pending results stay pending: a row-parallel linear sums over ranks before it adds its bias.
  record_tensor(recorder_, id, input, {});
  const std::string text = to_text(kept);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  recorder_.record(recorder_.next_id({Kind::kCollectiveInput, path, kCollectiveCallSlot}, nullptr),
                   TensorCopy{ElementType::kU8, {std::ssize(text)}, {bytes, bytes + text.size()}},
                   {});
  id.kind = Kind::kCollectiveOutput;
  return id;
}

void Capture::collective_ends(const TensorId& id, const at::Tensor& output) {
  contain([&] {
    if (id.step == step_) {
      record_tensor(recorder_, id, output, {});
    }
  });
}

std::optional<OpenSum> Capture::open_sum(const DispatchedSum& sum) const {
  const at::Tensor& first = sum.parts.front();
  const auto type = first.scalar_type();
  const bool is_summed = type == at::kBFloat16 || type == at::kHalf || type == at::kFloat ||
                         type == at::kDouble;  // codes of FP8 are sent, not added
  const bool is_kept = !noise_ && !recorder_.only_counts();
  if (!is_kept || !in_microbatch() || !unreadable(first).empty() || !is_summed) {
    return std::nullopt;
  }
  const OpenScope* scope = innermost_scope();
  return OpenSum{in_backward(),
                 scope != nullptr && !in_backward() ? scope->path : "",
                 sum.elements,
                 {{}, element_type_of(first).value(), sum.ranks},
                 norms_of(sum)};
}

void Capture::communication_begins(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const auto begin = [this](const std::vector<DispatchedSum>& sums) {
    for (const DispatchedSum& sum : sums) {
      if (auto open = open_sum(sum)) {
        sums_.begin(*std::move(open));
      }
    }
  };
  if (recorder_.ranks() == 1) {
    contain([&] { begin(dispatched_sums(name, inputs, false)); });
    return;
  }
  std::vector<DispatchedSum> sums;  // found by Python code, which contain() keeps from running
  try {
    sums = dispatched_sums(name, inputs, true);
  } catch (...) {
    failure_->keep(std::current_exception());
  }
  contain([&] { begin(sums); });
}

void Capture::announce_sum(const CollectiveCall& call, const at::Tensor& input) {
  const bool scatters = call.operation == CollectiveOperation::kReduceScatter;
  if ((!scatters && call.operation != CollectiveOperation::kAllReduce) ||
      call.reduction == CollectiveReduction::kMax) {
    return;
  }
  const bool is_average = call.reduction == CollectiveReduction::kAverage;
  auto open = open_sum({{input},
                        scatters ? input.numel() / call.size : input.numel(),
                        call.size,
                        is_average ? 1.0 / call.size : 1.0});
  if (open) {
    sums_.announce(*std::move(open));
  }
}

void Capture::scope_summed_gradient(const std::string& parameter, int ranks) {
  contain([&] { summed_gradients_[parameter] = ranks; });
}

void Capture::settle_sums(const TensorId& id,
                          const std::string& module,
                          const at::Tensor& tensor,
                          const std::vector<int>& known) {
  std::vector<OpenSum> sums = sums_.settle(id, module, tensor.numel(), in_backward());
  // A module's output, or its gradient, may be that of the one within it, too.
  if (sums.empty() && settled_ && settled_->first.same_value(tensor)) {
    sums = settled_->second;
  } else {
    if (const auto type = element_type_of(tensor); sums.empty() && type) {
      for (const int ranks : known) {
        OpenSum& known_sum = sums.emplace_back();
        known_sum.sum = {id, *type, ranks, std::nullopt};
      }
    }
    if (!sums.empty()) {
      settled_.emplace(TensorIdentity(tensor), sums);
    }
  }
  if (!recorder_.wants(id)) {
    return;
  }
  for (OpenSum& open : sums) {
    open.sum.id = id;
    recorder_.sum(open.sum, open.norms ? open.norms() : std::vector<Snapshot>());
  }
}

void Capture::record_known_sum(const TensorId& id, const at::Tensor& tensor, int ranks) {
  const auto type = element_type_of(tensor);
  if (ranks > 1 && type && recorder_.wants(id)) {
    recorder_.sum({id, *type, ranks, std::nullopt}, {});
  }
}

}  // namespace ttrace
