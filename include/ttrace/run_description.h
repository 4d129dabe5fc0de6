// What a program says about itself. The trace's manifest keeps it.
//
// Thread-safety: plain values.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ttrace {

// Key -> value, for one aspect of a run: {{"layers", "12"}, {"hidden", "768"}}.
using Section = std::map<std::string, std::string>;

struct RunDescription {
  // Sizes and choices of the model. A comparison refuses two traces whose `model` or `data` differ.
  Section model = {};
  Section data = {};      // data set, seed, batch sizes
  Section versions = {};  // versions of the program's parts; a comparison prints those that differ
  // Element type of activations: "f64", "f32", "bf16" or "f16". Quantised products have names of
  // their own: "fp8" if the other activations are BF16, "fp8_f32" if they are F32. Empty: the
  // program does not say.
  std::string precision = {};
  // Regular expressions of tensor ids that this run cannot record, such as a gradient that holds
  // the sum of several micro-batches. TTrace does not record an id in which one of them is found,
  // and a comparison accepts that it is missing.
  std::vector<std::string> untraced = {};
};

}  // namespace ttrace
