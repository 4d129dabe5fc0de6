// Which operators ran inside the modules that a zoom pass looks into, what each of them read, and
// which forward operator a backward one belongs to.
//
// An operator is on the list if it computes by itself: one that torch composes of others
// (aten::linear) and one over tensor subclasses (DTensor) are not, but those that they run are.
// What a listed operator runs inside is not listed. So the list of a parallel program has the
// operators of the single-device one, and its communication.
//
// A backward operator belongs to the forward operator that made its node of the graph, which torch
// numbers per thread.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/tensor_access.h"
#include "trace/merge/operator_call.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ttrace {

// A running operator, or what runs it.
struct TrailPlace {
  bool covers = false;                   // what runs inside is not listed
  std::optional<std::size_t> call = {};  // its own position
  std::vector<at::Tensor> read = {};     // arguments
  std::vector<at::Tensor> written = {};  // those of them that it changes
};

class OperatorTrail {
 public:
  // torch's numbers of a node: thread and number on it.
  using NodeKey = std::pair<std::uint64_t, std::uint64_t>;

  // Lists an operator. `next`: the node that it makes, if it makes one.
  std::size_t add(OperatorCall call, const std::optional<NodeKey>& next);
  // An operator outside of the modules ran in forward: nodes of before and after it are not of one
  // piece of the module.
  void interrupt() { piece_open_ = false; }
  // The forward operator that made a node, or the last one before it, if the module made the node.
  [[nodiscard]] std::optional<std::size_t> maker_of(const NodeKey& node) const;

  // What the operator reads, and what it has written. Requires: find() knows it.
  void read(std::size_t call, const at::Tensor& tensor);
  void wrote(std::size_t call, const at::Tensor& tensor);
  void viewed(std::size_t call, const at::Tensor& tensor);  // returned it, and it is a view
  // The operator that returned the tensor, or wrote to its memory since.
  [[nodiscard]] std::optional<std::size_t> writer_of(const at::Tensor& tensor) const;

  // Null if the list was taken since.
  [[nodiscard]] OperatorCall* find(std::size_t position) {
    return position < calls_.size() ? &calls_[position] : nullptr;
  }
  // Those that sent data, returned something, or have a backward of their own.
  [[nodiscard]] std::vector<OperatorCall> take();

 private:
  struct Node {
    std::size_t call = 0;
    std::size_t piece = 0;
  };
  struct Written {
    WeakStorage storage;
    std::size_t call = 0;
  };
  std::vector<OperatorCall> calls_;
  std::map<NodeKey, Node> nodes_;
  struct Viewed {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // keeps the address from being reused
    std::size_t call = 0;
  };
  std::unordered_map<const c10::StorageImpl*, Written> written_;
  std::unordered_map<const c10::TensorImpl*, Viewed> viewed_;
  std::size_t piece_ = 0;
  bool piece_open_ = false;
};

}  // namespace ttrace
