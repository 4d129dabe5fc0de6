#include "hooks/capture/capture.h"

#include <ttrace/collective.h>

namespace ttrace {

Collective::Collective(const CollectiveCall& call,
                       const at::Tensor& input,
                       const std::source_location& where) {
  if (Capture* capture = active_capture()) {
    output_ = capture->collective_begins(call, input);
    if (output_) {
      capture->called_from(output_->path, where);
    }
  }
}

void Collective::finished(const at::Tensor& output) {
  if (output_) {
    if (Capture* capture = active_capture()) {
      capture->collective_ends(*output_, output);
    }
    output_.reset();
  }
}

}  // namespace ttrace
