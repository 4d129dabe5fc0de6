// Remembers which module returned a tensor, until something overwrites it.
//
// If a module takes a tensor that another one returned, the tensor is not recorded again as its
// input; an edge joins the two.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/tensor_access.h"
#include "hooks/capture/gradient_waits.h"
#include "hooks/capture/microbatches.h"
#include "hooks/capture/recorder.h"

#include <ttrace/rows.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace ttrace {

// A value that a module has returned.
struct Produced {
  std::vector<TensorId> parts;  // one, or one for every micro-batch that has rows in it
  TensorIdentity identity;
  MicrobatchPtr microbatch;
  GradientSlotPtr gradient;  // null if none is expected
};

class Producers {
 public:
  // `recorder` outlives this object.
  explicit Producers(Recorder& recorder) : recorder_(recorder) {}

  void remember(Produced value);
  // The id of the first of `inputs` that a module returned. Returns nothing if there is no such
  // input, or if it is recorded in several parts.
  [[nodiscard]] std::optional<TensorId> producer_among(c10::ArrayRef<c10::IValue> inputs,
                                                       const MicrobatchPtr& microbatch) const;
  // If `tensor` comes from another module, records an edge from there to the input `spot` and
  // returns true. `rows` as in Scope::in(), or null.
  [[nodiscard]] bool join(const Spot& spot,
                          const at::Tensor& tensor,
                          const Rows* rows,
                          const MicrobatchPtr& microbatch);
  // The id of the first value of this micro-batch that is still in the memory of `tensor`.
  [[nodiscard]] std::optional<TensorId> first_name_of(const at::Tensor& tensor,
                                                      const MicrobatchPtr& microbatch) const;
  // The slot of the last value with the memory of `tensor`; null if there is none.
  [[nodiscard]] GradientSlotPtr gradient_at(const at::Tensor& tensor) const;
  // Forgets the values of a micro-batch that is over, and those whose memory is gone.
  void forget(const MicrobatchPtr& microbatch);
  void clear() { by_storage_.clear(); }

 private:
  // The last value of this micro-batch that `tensor` still holds; null if there is none.
  [[nodiscard]] const Produced* producer_of(const at::Tensor& tensor,
                                            const MicrobatchPtr& microbatch) const;
  void record_edges(const std::vector<TensorId>& consumers, const Produced& source);

  Recorder& recorder_;
  std::unordered_map<const void*, std::vector<Produced>> by_storage_;
};

}  // namespace ttrace
