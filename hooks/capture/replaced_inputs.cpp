#include "hooks/capture/replaced_inputs.h"

#include <algorithm>

namespace ttrace {

void ReplacedInputs::remember(const at::Tensor& original,
                              const at::Tensor& replacement,
                              const MicrobatchPtr& microbatch) {
  if (!replacement.is_same(original)) {
    replaced_.push_back({TensorIdentity(original), replacement.detach(), microbatch});
  }
}

at::Tensor ReplacedInputs::given_for(const at::Tensor& tensor,
                                     const MicrobatchPtr& microbatch) const {
  const auto found =
      std::find_if(replaced_.rbegin(), replaced_.rend(), [&](const Replaced& replaced) {
        return replaced.microbatch == microbatch && replaced.original.same_value(tensor);
      });
  return found == replaced_.rend() ? tensor : found->values;
}

void ReplacedInputs::forget(const MicrobatchPtr& microbatch) {
  std::erase_if(replaced_, [&](const Replaced& replaced) {
    return replaced.microbatch == microbatch || replaced.original.storage.expired();
  });
}

}  // namespace ttrace
