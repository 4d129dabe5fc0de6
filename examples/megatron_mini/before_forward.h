// A hook before the forward of the model's larger modules: embedding, layers, final norm and output
// layer. C++ modules have none of their own.
//
// Thread-safety: none; one training thread.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace megatron_mini {

class BeforeForward {
 public:
  // `action` gets the module's path, "decoder.layers.0"; an empty one: none.
  void set(std::function<void(const std::string&)> action) { action_ = std::move(action); }
  void operator()(const std::string& module) const {
    if (action_) {
      action_(module);
    }
  }

 private:
  std::function<void(const std::string&)> action_;
};

}  // namespace megatron_mini
