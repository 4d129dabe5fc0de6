// Lets a thread call the device while another one records a CUDA graph.
//
// While a graph is recorded in CUDA's default mode, a wait for an event by any thread, however
// foreign to the graph, makes the recording invalid. A thread that has declared that it knows what
// it does is exempt.
//
// Thread-safety: acts on the calling thread alone.
#pragma once

namespace ttrace {

// While it lives, calls of this thread disturb no recording. REQUIRES: it calls for no stream that
// records. Does nothing without CUDA's driver in the process.
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode();
  ~RelaxedCaptureMode();
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;  // undoes once
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  int before_;
};

}  // namespace ttrace
