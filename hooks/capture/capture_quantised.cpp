// The part of Capture that looks at casts into FP8.
//
// A scale that is recorded, and an operand that a pass can take over, leave nothing open: both
// programs then round to the same codes. A scale that nobody recorded may be the rank's own. It
// follows from the largest of the rows that the rank has, and the rounding of every element then
// has nothing in common with that of the reference, which scales by the largest of all rows. So the
// forced pass in the reference's own precision moves such codes as a noise pass does, and the
// operators' round-off contains one rounding to FP8.
#include "hooks/capture/capture.h"

namespace ttrace {

void Capture::quantised(const at::Tensor& codes) {
  contain([&] {
    has_codes_ = true;
    if (noise_of_codes_ && noise_of_codes_->concerns_this_thread()) {
      noise_of_codes_->apply(codes, NoiseClass::kRounding, {});
    }
  });
}

void Capture::look_for_unseen_scales() {
  if (has_codes_ && !has_scales_) {
    recorder_.not_seen(
        {NotSeenKind::kValues,
         "nobody recorded the scales by which values are cast into FP8; they may be each rank's "
         "own, so a scale that is slightly wrong goes unseen, and operators have room for one more "
         "rounding to FP8"});
  }
}

}  // namespace ttrace
