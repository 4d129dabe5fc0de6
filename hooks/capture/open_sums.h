// Sums over ranks that have begun and whose record is not known yet.
//
// A sum is seen when it starts: as an operator of c10d, or because the program announces it
// (ttrace::Collective). If both happen for one sum, it counts once. Later a record holds the
// result, and the sums of the same module, direction and size get that record's id.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/snapshot.h"
#include "trace/file/rounded_sum.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {

struct OpenSum {
  bool backward = false;
  std::string module;         // of the innermost scope; empty in backward and outside of scopes
  std::int64_t elements = 0;  // of this rank's part of the result
  RoundedSum sum;             // without id
  // Doubles whose squares are part of sum.squared (WriterThread::sum). They are asked for when the
  // record is known, and only if it is wanted. Empty: there are none.
  std::function<std::vector<Snapshot>()> norms = {};
};

class OpenSums {
 public:
  // The program announces that this sum is about to start.
  void announce(OpenSum sum);
  // An operator is about to compute this sum. If the program has announced it, it is known already.
  void begin(OpenSum sum);
  // Forgets forward sums outside of scopes: the exponentials that a loss function sums over ranks
  // are not addends of the loss.
  void forget_outside_of_scopes();
  // Takes out the sums that went into the record `id` of `elements` elements. `module` is empty for
  // a gradient. They are in the order in which they began, and have that id.
  [[nodiscard]] std::vector<OpenSum> settle(const TensorId& id,
                                            const std::string& module,
                                            std::int64_t elements,
                                            bool backward);
  void clear() { sums_.clear(); }

 private:
  struct Entry {
    OpenSum open;
    bool announced = false;  // by the program; no operator was seen to start it yet
  };
  std::vector<Entry> sums_;
};

}  // namespace ttrace
