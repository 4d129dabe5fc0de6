// What modules computed that choose experts where nobody sees it, such as inside of compiled code.
//
// A forced pass gives the reference the candidate's values, but it cannot give it choices that were
// not recorded. A token whose scores nearly tie goes to another expert there, and the gradients of
// both experts differ by what one token contributes.
//
// Thread-safety: immutable after construction.
#pragma once

#include "analysis/align/model_vocabulary.h"
#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <set>
#include <string>
#include <string_view>

namespace ttrace {

class HiddenChoices {
 public:
  // Modules count whose choices either program hides (Role::kHiddenChoices).
  HiddenChoices(const Trace& reference, const Trace& candidate);

  // Whether a tensor follows from such choices even where all that its module was given is right.
  [[nodiscard]] bool made(const TensorId& id) const;

 private:
  [[nodiscard]] bool hides(std::string_view path) const;

  ModelVocabulary reference_;
  ModelVocabulary candidate_;
  std::set<std::string> taken_;  // modules whose outputs such a module took
};

}  // namespace ttrace
