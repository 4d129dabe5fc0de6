// Derives from the data alone where the ranks' parts of every tensor lie, and finds declared
// placements that the bytes contradict.
//
// All placements of the dims grammar that a tensor's sizes allow are compared with the reference
// (fits.h), for each tensor that both traces hold. The tensors of a class vote (vote.h). The flat
// ranges of a distributed optimizer are looked for in its parameters (flat_ranges.h). What is
// declared is read last, and only to be compared.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/selection.h"
#include "analysis/infer/vote.h"
#include "trace/file/trace_reader.h"

#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// The evidence that decided a placement.
enum class Source {
  kSizes,     // nothing else has these sizes
  kBytes,     // nothing else agrees with the reference
  kVote,      // several agree; that of its class
  kSimplest,  // several agree, for all of its class; the simplest of them
  kNone,      // no placement of the grammar explains it
};

// "sizes", "bytes", "vote", "ambiguous", "unexplained".
[[nodiscard]] std::string_view name_of(Source source);

struct InferredTensor {
  TensorId id;
  PlacementClass tensors;
  std::vector<int> ranks;  // that hold it, ascending
  Source source = Source::kNone;
  std::string dims;  // empty if nothing explains it; of a flat range its parameter's
  std::vector<Placement> placements;  // by rank; empty if nothing explains it
  double error = 0.0;      // relative, at the factor; about 1 if the values are unrelated
  bool has_signal = true;  // the values agree with the reference at all
  std::string remark;      // why nothing explains it

  std::vector<Placement> declared;  // by rank
  bool agrees = false;              // both map local to logical indices alike, on all ranks
  double declared_error = 0.0;      // relative; infinite where the sizes differ
  bool contradicted = false;        // the bytes speak against what is declared
};

struct InferredClass {
  PlacementClass tensors;
  Election election;
};

// A declaration that bytes contradict, of all tensors of a class that lie alike.
struct Contradiction {
  PlacementClass tensors;
  std::vector<std::size_t> members;  // numbers of tensors, ascending
  std::string declared;              // dims where it can be said in them, else the placement's text
  std::string inferred;
};

struct Inference {
  // Empty trace: recorded with placements="none".
  bool declares = true;
  std::vector<InferredTensor> tensors;  // in execution order
  std::vector<InferredClass> classes;   // in the order of their first tensor
  std::vector<Contradiction> contradictions;
  std::size_t by_rows = 0;    // tensors whose rows a router sent: the program itself places them
  std::size_t one_sided = 0;  // that have placements and are in one trace only
  std::vector<std::string> warnings;  // of the selection

  [[nodiscard]] std::size_t count(Source source) const;
  [[nodiscard]] std::size_t agreeing() const;
};

struct InferOptions {
  int threads = 0;  // 0: all cores
  Selection selection = {};
  std::function<bool(const TensorId&)> only = {};  // of these; empty: of all
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

// Throws FormatError for records that contradict their files.
[[nodiscard]] Inference infer(const Trace& reference, const Trace& candidate, InferOptions options);

}  // namespace ttrace
