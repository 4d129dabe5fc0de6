// The file in which a user says which tensors of two programs with different module names are the
// same (`plain.rename.yaml`).
//
//   tensors:                                     # first match wins
//     - reference: layers.*.norm                 # `*`: one part, or the rest of one, in order on
//       candidate: decoder.layers.*.layernorm    # both sides; what lies below a path follows it
//     - reference: [layers.*.wq, layers.*.wk, layers.*.wv]
//       candidate: decoder.layers.*.linear_qkv   # one tensor where the other side has several
//       groups: 2                                # each has its part of each; default 1: stacked
//       ratio: [2, 1, 1]                         # of the parts' sizes; default: all equal
//     - reference: layers.*.attention/1          # that slot alone; else all slots
//       candidate: ~                             # only the reference has it
//       kinds: [output, grad_output]             # this entry is for these alone; default: all
//     - reference: h.*.c_fc
//       candidate: decoder.layers.*.linear_fc1
//       dims:                                    # before those below
//         - {kinds: parameters, reference: "in out", candidate: "out in"}
//   dims:                                        # by number of dimensions, first match wins
//     - kinds: activations                       # (inputs, outputs, their gradients, messages)
//       reference: "b s n d"                     # the words of annotations, without axes;
//       candidate: "s b (n*d=16)"                # one dimension of two factors
//
// Parts are put together along the first dimension of parameters, their gradients and moments, and
// along the last one of everything else, in the candidate's order of dimensions. An input of a
// module that has parts is that of any of them.
#pragma once

#include "analysis/findings/names.h"

#include <ttrace/dims.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {

// How several parts form one tensor: each part is cut into `groups` equal pieces, and the i-th
// pieces of all parts are neighbours. The sizes of the parts have this ratio, one number for each.
struct Fusion {
  std::int64_t groups = 1;
  std::vector<std::int64_t> ratio;
};

// The dimensions of one tensor on both sides: the same factors in another order, or put together
// otherwise. Of the factors of one dimension at most one has no size.
struct DimsPair {
  std::set<Kind> kinds;
  DimsSpec reference;
  DimsSpec candidate;

  [[nodiscard]] const DimsSpec& of(Names names) const {
    return names == Names::kReference ? reference : candidate;
  }
};

// One correspondence between the sides: one tensor each, several parts of one tensor, or a tensor
// that only one side has.
struct Counterparts {
  std::vector<TensorId> reference;
  std::vector<TensorId> candidate;
  std::optional<std::size_t> rule;  // number of the entry; nothing: both have the same name

  [[nodiscard]] const std::vector<TensorId>& of(Names names) const {
    return names == Names::kReference ? reference : candidate;
  }
};

class RenameMap {
 public:
  // Throws UsageError with path and line for an unreadable file, an unknown key, patterns whose
  // stars differ in number, or dims that cannot be carried over.
  static RenameMap load(const std::string& file);
  // The same from text; `origin` stands for the path in messages.
  static RenameMap parse(const std::string& text, const std::string& origin = "rename map");

  // `id` is a name of `names`. Where no entry matches, the other side calls it the same.
  [[nodiscard]] Counterparts find(Names names, const TensorId& id) const;
  // The other side's arrangement of the dimensions of a tensor with `rank` dimensions, in the order
  // of `names`; null if it is the same.
  [[nodiscard]] const DimsPair* dims(const Counterparts& tensor,
                                     Kind kind,
                                     Names names,
                                     std::size_t rank) const;
  // Requires: the entry is one of parts.
  [[nodiscard]] const Fusion& fusion(std::size_t rule) const { return rules_.at(rule).fusion; }

  [[nodiscard]] std::size_t rule_count() const { return rules_.size(); }
  // Whether any tensor of `names` can match the entry.
  [[nodiscard]] bool has_names(std::size_t rule, Names names) const;
  // "plain.rename.yaml:7"
  [[nodiscard]] std::string place_of(std::size_t rule) const;
  [[nodiscard]] const std::string& origin() const { return origin_; }
  // Writes what was read. Throws FormatError.
  void save(const std::string& file) const;

 private:
  friend class RenameMapReader;

  struct Pattern {
    std::vector<std::string> parts;  // with at most one star each
    std::optional<int> slot;
  };
  struct Rule {
    std::vector<Pattern> reference;
    std::vector<Pattern> candidate;
    std::set<Kind> kinds;  // empty: all
    Fusion fusion;
    std::vector<DimsPair> dims;
    int line = 0;

    [[nodiscard]] const std::vector<Pattern>& of(Names names) const {
      return names == Names::kReference ? reference : candidate;
    }
  };
  struct Captures;

  [[nodiscard]] static std::optional<Captures> matched(const Pattern& pattern, const TensorId& id);
  [[nodiscard]] static TensorId filled(const Pattern& pattern, const Captures& captures);

  std::vector<Rule> rules_;
  std::vector<DimsPair> dims_;
  std::string origin_;
  std::string text_;
};

}  // namespace ttrace
