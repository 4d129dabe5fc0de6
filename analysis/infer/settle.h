// Where the candidate's tensors lie of which nobody said it.
//
// The record of such a tensor holds a guess: whole on every rank, or what the program found likely.
// Where the ranks' tensors contradict it, by their sizes or as copies that differ, the values
// decide (infer.h). All undeclared tensors of a class vote, over layers, micro-batches and steps. A
// cut or a copy that explains all of them is used, and listed. A partial sum is not, unless the
// guess is one over the same axes, the candidate's main gradients are that sum
// (summed_gradients.h), or the ranks agree on what they computed next. Otherwise it is what a
// missing reduction looks like: this tensor stays a finding, and the user is asked.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/infer/vote.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/settled_dims.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {

enum class Settlement {
  kUsed,         // it lies as `dims` say
  kQuestion,     // the ranks hold addends: as `dims` say, or a reduction is missing
  kUnexplained,  // no placement explains all tensors of the class
  kSummed,       // the ranks hold addends over the axes `dims`, as the main gradients show
  kAveraged,     // the same of a mean
};

struct SettledClass {
  PlacementClass tensors;
  Settlement settlement = Settlement::kUnexplained;
  std::string dims;  // empty where nothing explains the class; of kSummed and kAveraged the axes
  std::size_t members = 0;    // tensors that contradicted the guess
  std::size_t questions = 0;  // of these, addends of which nobody knows that they are summed

  // A sentence for the report.
  [[nodiscard]] std::string sentence() const;
};

// Whether the program adds up over ranks, later on, what it holds of a tensor: somebody saw it.
using IsSummedLater = std::function<bool(const TensorId&)>;

// Sets the placements of undeclared records of `candidate`, and numbers addends (absent_addends.h).
// Classes are in the order of their first
// tensor. Reads values only where there are undeclared records. Addends of a class whose tensors
// are all summed later are used as such.
[[nodiscard]] std::vector<SettledClass> settle_placements(
    const Trace& reference,
    Trace& candidate,
    int threads,
    const IsSummedLater& is_summed_later = {});

// The placements that settle_placements() uses of what nobody declared, of two stored traces whose
// samples are aligned first. `threads`: 0 for all cores. Throws FormatError if a trace cannot be
// read.
[[nodiscard]] SettledDims settled_dims(const std::string& reference,
                                       const std::string& candidate,
                                       int threads = 0);

}  // namespace ttrace
