// The operator callback of the process.
//
// Thread-safety: construct, enable, disable and destroy on the training thread while no operator
// runs; the callback itself runs on whatever thread an operator runs.
#pragma once

#include <cstdint>

namespace ttrace {

class Observer {
 public:
  Observer();                          // registers the callback, disabled
  ~Observer();                         // removes it
  Observer(const Observer&) = delete;  // owns a registration
  Observer& operator=(const Observer&) = delete;

  void enable();
  void disable();

 private:
  std::uint64_t handle_;
};

}  // namespace ttrace
