#include "hooks/nudge/origins.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

bool holds_only_zeros(const at::Tensor& tensor) {
  if (c10::isFloat8Type(tensor.scalar_type()) || !unreadable(tensor).empty()) {
    return true;  // torch has no operator for this question
  }
  const at::NoGradGuard no_grad;
  return !at::any(tensor).item<bool>();
}

}  // namespace

std::optional<Origin> Origins::of(const at::Tensor& tensor) const {
  const auto found = by_storage_.find(storage_of(tensor));
  if (found == by_storage_.end()) {
    return std::nullopt;
  }
  const Origin origin = found->second.origin;
  return origin == Origin::kZeros && !holds_only_zeros(tensor) ? Origin::kOpaque : origin;
}

void Origins::set(const at::Tensor& tensor, Origin origin) {
  const auto found = by_storage_.find(storage_of(tensor));
  if (found != by_storage_.end()) {
    found->second.origin = origin;
    return;
  }
  set_if_new(tensor, origin);
}

void Origins::set_if_new(const at::Tensor& tensor, Origin origin) {
  if (by_storage_.size() >= tidy_at_) {
    forget_expired();
  }
  by_storage_.try_emplace(storage_of(tensor), Entry{weak_storage(tensor), origin});
}

void Origins::forget_expired() {
  std::erase_if(by_storage_, [](const auto& item) { return item.second.storage.expired(); });
  tidy_at_ = std::max(kFewEntries, 2 * by_storage_.size());
}

}  // namespace ttrace
