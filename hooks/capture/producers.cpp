#include "hooks/capture/producers.h"

#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/row_parts.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ttrace {

void Producers::remember(Produced value) {
  const void* storage = value.identity.storage._unsafe_get_target();
  by_storage_[storage].push_back(std::move(value));
}

const Produced* Producers::producer_of(const at::Tensor& tensor,
                                       const MicrobatchPtr& microbatch) const {
  const auto known = by_storage_.find(storage_of(tensor));
  if (known == by_storage_.end()) {
    return nullptr;
  }
  const auto found =
      std::find_if(known->second.rbegin(), known->second.rend(), [&](const Produced& value) {
        return value.microbatch == microbatch && value.identity.same_value(tensor);
      });
  return found == known->second.rend() ? nullptr : &*found;
}

std::optional<TensorId> Producers::producer_among(c10::ArrayRef<c10::IValue> inputs,
                                                  const MicrobatchPtr& microbatch) const {
  std::optional<TensorId> result;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!result && tensor.has_storage() && unreadable(tensor).empty()) {
        const Produced* const source = producer_of(tensor, microbatch);
        if (source != nullptr && source->parts.size() == 1) {
          result = source->parts.front();
        }
      }
    });
  }
  return result;
}

bool Producers::join(const Spot& spot,
                     const at::Tensor& tensor,
                     const Rows* rows,
                     const MicrobatchPtr& microbatch) {
  const Produced* const source =
      unreadable(tensor).empty() ? producer_of(tensor, microbatch) : nullptr;
  if (source == nullptr) {
    return false;
  }
  std::vector<TensorId> consumers;
  if (rows == nullptr) {
    consumers.push_back(recorder_.next_id(spot, microbatch.get()));
  } else {
    for (const RowPart& part : split_rows(*rows, shape_of(tensor), microbatch)) {
      consumers.push_back(recorder_.next_id(spot, part.microbatch.get()));
    }
  }
  record_edges(consumers, *source);
  return true;
}

// Rows of several micro-batches are as many values, on either end.
void Producers::record_edges(const std::vector<TensorId>& consumers, const Produced& source) {
  for (const TensorId& consumer : consumers) {
    const auto producer =
        std::find_if(source.parts.begin(), source.parts.end(), [&](const TensorId& part) {
          return part.microbatch == consumer.microbatch;
        });
    if (producer != source.parts.end()) {
      recorder_.edge(consumer, *producer);
    }
  }
}

std::optional<TensorId> Producers::first_name_of(const at::Tensor& tensor,
                                                 const MicrobatchPtr& microbatch) const {
  if (const auto found = by_storage_.find(storage_of(tensor)); found != by_storage_.end()) {
    for (const Produced& value : found->second) {
      if (value.microbatch == microbatch && value.parts.size() == 1 &&
          value.identity.same_value(tensor)) {
        return value.parts.front();
      }
    }
  }
  return std::nullopt;
}

GradientSlotPtr Producers::gradient_at(const at::Tensor& tensor) const {
  GradientSlotPtr slot;
  if (const auto found = by_storage_.find(storage_of(tensor)); found != by_storage_.end()) {
    for (const Produced& value : found->second) {
      if (value.identity.same_place(tensor)) {
        slot = value.gradient;
      }
    }
  }
  return slot;
}

void Producers::forget(const MicrobatchPtr& microbatch) {
  for (auto it = by_storage_.begin(); it != by_storage_.end();) {
    std::erase_if(it->second, [&](const Produced& value) {
      return value.microbatch == microbatch || value.identity.storage.expired();
    });
    it = it->second.empty() ? by_storage_.erase(it) : std::next(it);
  }
}

}  // namespace ttrace
