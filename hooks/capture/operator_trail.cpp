#include "hooks/capture/operator_trail.h"

#include <algorithm>
#include <iterator>

namespace ttrace {
namespace {

// A list without what was dropped: positions change.
std::vector<OperatorCall> without_dropped(std::vector<OperatorCall> calls) {
  std::vector<std::optional<std::size_t>> position(calls.size());
  std::vector<bool> has_backward(calls.size());
  for (const OperatorCall& call : calls) {
    if (call.forward) {
      has_backward[*call.forward] = true;
    }
  }
  std::vector<OperatorCall> kept;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    OperatorCall& call = calls[i];
    // What was read from an operator without values of its own came from what that one had read.
    std::vector<std::size_t> made_by;
    for (const std::size_t maker : call.made_by) {
      if (position[maker]) {
        made_by.push_back(*position[maker]);
      }
    }
    std::ranges::sort(made_by);
    call.made_by = std::move(made_by);
    if (call.forward) {
      call.forward = position[*call.forward];
    }
    // A forward operator without values may have one in backward.
    if (call.communicates || call.is_function || !call.results.empty() || has_backward[i]) {
      position[i] = kept.size();
      kept.push_back(std::move(call));
    }
  }
  return kept;
}

}  // namespace

std::size_t OperatorTrail::add(OperatorCall call, const std::optional<NodeKey>& next) {
  const std::size_t position = calls_.size();
  if (next) {
    if (!piece_open_) {
      ++piece_;
      piece_open_ = true;
    }
    nodes_[*next] = {position, piece_};  // an operator that makes no node leaves the number free
  }
  calls_.push_back(std::move(call));
  return position;
}

std::optional<std::size_t> OperatorTrail::maker_of(const NodeKey& node) const {
  const auto behind = nodes_.upper_bound(node);
  if (behind == nodes_.begin()) {
    return std::nullopt;
  }
  const auto& [key, made] = *std::prev(behind);
  if (key == node) {
    return made.call;
  }
  const bool between = behind != nodes_.end() && key.first == node.first &&
                       behind->first.first == node.first && behind->second.piece == made.piece;
  return between ? std::optional(made.call) : std::nullopt;
}

void OperatorTrail::read(std::size_t call, const at::Tensor& tensor) {
  const auto writer = writer_of(tensor);
  OperatorCall& reader = calls_[call];
  if (!writer) {
    reader.reads_outside = true;
  } else if (std::ranges::find(reader.made_by, *writer) == reader.made_by.end()) {
    reader.made_by.push_back(*writer);
  }
}

std::optional<std::size_t> OperatorTrail::writer_of(const at::Tensor& tensor) const {
  const auto written = written_.find(storage_of(tensor));
  const auto viewed = viewed_.find(tensor.unsafeGetTensorImpl());
  const bool has_view = viewed != viewed_.end();
  if (written == written_.end()) {
    return has_view ? std::optional(viewed->second.call) : std::nullopt;
  }
  return has_view ? std::max(viewed->second.call, written->second.call) : written->second.call;
}

void OperatorTrail::wrote(std::size_t call, const at::Tensor& tensor) {
  written_.insert_or_assign(storage_of(tensor), Written{weak_storage(tensor), call});
}

void OperatorTrail::viewed(std::size_t call, const at::Tensor& tensor) {
  viewed_.insert_or_assign(
      tensor.unsafeGetTensorImpl(),
      Viewed{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), call});
}

std::vector<OperatorCall> OperatorTrail::take() {
  std::vector<OperatorCall> calls = without_dropped(std::move(calls_));
  calls_.clear();
  nodes_.clear();
  written_.clear();
  viewed_.clear();
  piece_open_ = false;
  return calls;
}

}  // namespace ttrace
