// The file in which a user says how tensors are placed (`gpt.ttrace.yaml`).
//
//   sizes: {v: 257}                       # true size of a padded dimension; a program may set more
//   roles: {attention: "h.*.attn*"}       # what the program calls things, see docs/parallelism.md
//   tensors:                              # first match wins; `*` one path part, `**` any number
//     - path: embedding.word_embeddings.weight
//       value: "v[tp] h"                  # param, main_grad, master, param_next, moments
//       grad: "v[tp] h"                   # param_grad of one micro-batch; default: as value
//     - path: decoder.layers.*.self_attention.core_attention
//       value: "s b a[tp]"                # output (a list where there are several slots)
//       grad: "s b a[tp]"                 # grad_output; default: as value
//       inputs: ["s b n[tp] d", ...]      # input, by slot
//       input_grads: [...]                # grad_input; default: as inputs
//       routing: ["s b k", "s b"]         # choices of experts and margins; default: as value
//       scales: [...]                     # scale, by slot; one without dimensions is whole
//       operands: [...]                   # operand, by slot; default: inputs, value of the
//                                         # parameter `weight` below the path, grad
//
// A single string stands for slot 0. The first entry whose path matches decides, even where a later
// one matches as well. What it does not say, and what no entry matches, lies where the program has
// derived it (Annotations::derive), else it is taken as whole on every rank, so that its replicas
// must agree.
// A dimension named `b` holds samples; it is put back in order in noise passes.
#pragma once

#include <ttrace/dims.h>
#include <ttrace/export.h>
#include <ttrace/layout.h>
#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

class TTRACE_API Annotations {
 public:
  // No entries: every tensor is whole.
  Annotations() = default;

  // Throws UsageError with path and line for an unreadable file, an unknown key or a bad dims
  // string.
  static Annotations load(const std::string& file);
  // The same from text; `origin` stands for the path in messages.
  static Annotations parse(const std::string& text, const std::string& origin = "annotations");

  // Sets a dimension's logical size; returns *this, so that it chains after load().
  Annotations& size(const std::string& name, std::int64_t value);
  // Tensors whose path matches `path` do not use `axis`, whatever their entries say: a layer that
  // every rank of the axis computes as a whole. Returns *this.
  Annotations& without(const std::string& axis, const std::string& path);
  // What a program knows of one tensor by itself: `field` is a key of an entry ("value", "grad",
  // "inputs", ...), `path` no pattern. Where an entry of the file says where that tensor lies, the
  // entry rules. Replaces what was derived before. Returns *this. Throws UsageError for an unknown
  // field, a path that is none, or bad dims.
  Annotations& derive(const std::string& path,
                      std::string_view field,
                      int slot,
                      std::string_view dims);
  // What plays a role of docs/parallelism.md, "Names of your own": patterns separated by spaces, in
  // which `*` stands for any letters. Where the file names the role, the file rules. Returns *this.
  // Throws UsageError for an unknown role or no pattern.
  Annotations& role(const std::string& name, const std::string& patterns);
  [[nodiscard]] const Sizes& sizes() const { return sizes_; }
  [[nodiscard]] const std::map<std::string, std::string>& roles() const { return roles_; }

  // The dims of a tensor, or nothing where no entry matches (then it is whole).
  [[nodiscard]] std::optional<DimsSpec> find(Kind kind,
                                             const std::string& path,
                                             int slot = 0) const;

  // Placement of a rank's tensor: find() and place(), or whole(). Errors name path and kind.
  [[nodiscard]] Placement placement(Kind kind,
                                    const std::string& path,
                                    int slot,
                                    std::span<const std::int64_t> local_shape,
                                    const Layout& layout) const;

 private:
  using Slots = std::vector<std::optional<DimsSpec>>;  // empty: not given
  struct Entry {
    std::string path;  // pattern
    Slots value, grad, inputs, input_grads, routing, scales, operands;
  };
  // Null for a name that is no field's.
  [[nodiscard]] static Slots Entry::*field_of(std::string_view name);
  [[nodiscard]] static std::optional<DimsSpec> find_in(const Entry& entry, Kind kind, int slot);
  struct Removal {
    std::string axis;
    std::string path;  // pattern
  };
  std::vector<Entry> entries_;
  std::map<std::string, Entry, std::less<>> derived_;  // by path
  std::vector<Removal> removals_;
  Sizes sizes_;
  std::map<std::string, std::string> roles_;  // patterns by role
};

// Whether a dotted path matches a pattern with `*` (one part) and `**` (any number of parts).
[[nodiscard]] TTRACE_API bool path_matches(std::string_view pattern, std::string_view path);

}  // namespace ttrace
