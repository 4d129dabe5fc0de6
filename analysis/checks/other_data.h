// Programs that compute on other data although both may be right, so that no tensor says anything.
//
// Either the reference draws its data anew in every run, or ranks draw numbers for their samples
// and nobody can tell which numbers belong to which sample.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/bounds/noise.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"

#include <span>
#include <string>

namespace ttrace {

// One sentence with its remedy; empty where what differs in the data is to be judged. Data differ
// where a tensor that the model is given does by more than a quarter of its norm (numbers drawn
// anew differ by 0.7 of it and more), or where `knows_no_sample`: no sample could be aligned. The
// reference draws anew if it differs as much from its own repetition: the self-check, or else the
// noise passes, which change no data. `tensors`: in the reference's order.
[[nodiscard]] std::string why_other_data(const Trace& reference,
                                         const Trace& candidate,
                                         const NoiseModel& noise,
                                         std::span<const TensorVerdict> tensors,
                                         bool knows_no_sample);

}  // namespace ttrace
