// The activations that modules were given and returned last, by shape: what a random operator drew
// lies where the activation lies that it belongs to, and nobody declares more of it.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/capture/microbatches.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <vector>

namespace ttrace {

struct LatestShape {
  TensorId id;
  std::vector<std::int64_t> shape;  // of this rank's tensor
  MicrobatchPtr microbatch;
  bool has_rows = false;  // the program placed its rows, so that its id alone does not say where
};

class LatestShapes {
 public:
  void saw(LatestShape activation);
  // Of the micro-batch, the latest first; one of each shape.
  [[nodiscard]] std::vector<const LatestShape*> of(const MicrobatchPtr& microbatch) const;
  void clear() { latest_.clear(); }

 private:
  std::vector<LatestShape> latest_;  // the latest last
};

}  // namespace ttrace
