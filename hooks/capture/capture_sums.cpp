// The part of Capture that follows sums over ranks and other communication.
#include "hooks/capture/capture.h"
#include "hooks/capture/record_tensor.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace ttrace {

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
                   {ElementType::kU8, {std::ssize(text)}, {bytes, bytes + text.size()}},
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
  if (!in_microbatch() || !unreadable(first).empty() || !is_summed) {
    return std::nullopt;
  }
  const at::NoGradGuard no_grad;
  double squared = 0.0;
  for (const at::Tensor& part : sum.parts) {
    const double norm = part.norm(2, at::kDouble).item<double>() * sum.weight;
    squared += norm * norm;
  }
  const OpenScope* scope = innermost_scope();
  return OpenSum{in_backward(),
                 scope != nullptr && !in_backward() ? scope->path : "",
                 sum.elements,
                 {{}, element_type_of(first).value(), sum.ranks, squared}};
}

void Capture::communication_begins(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  contain([&] {
    for (const DispatchedSum& sum : dispatched_sums(name, inputs)) {
      if (auto open = open_sum(sum)) {
        sums_.begin(*std::move(open));
      }
    }
  });
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

void Capture::settle_sums(const TensorId& id, const std::string& module, std::int64_t elements) {
  for (const RoundedSum& sum : sums_.settle(id, module, elements, in_backward())) {
    recorder_.sum(sum);
  }
}

}  // namespace ttrace
