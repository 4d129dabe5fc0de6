// The annotation file, in which a user says how tensors are placed (`gpt.ttrace.yaml`).
//
// clang-format off
//   const auto annotations = ttrace::Annotations::load("gpt.ttrace.yaml").size("v", 257);
// clang-format on
//
// A file has three sections, `sizes`, `roles` and `tensors`:
//
// clang-format off
// ```yaml
// sizes: {v: 257}                       # true size of a padded dimension; a program may set more
// roles: {attention: "h.*.attn*"}       # what the program calls things, see docs/parallelism.md
// tensors:                              # the first match decides; `*` is one part of a path, `**` any number
//   - path: embedding.word_embeddings.weight
//     value: "v[tp] h"                  # param, main_grad, master, param_next and moments
//     data: "b s"                       # an input of the step with this name; default: as value
//     grad: "v[tp] h"                   # param_grad of one micro-batch; default: as value
//   - path: decoder.layers.*.self_attention.core_attention
//     value: "s b a[tp]"                # output (a list where there are several slots)
//     grad: "s b a[tp]"                 # grad_output; default: as value
//     inputs: ["s b n[tp] d"]           # input, by slot
//     input_grads: ["s b n[tp] d"]      # grad_input; default: as inputs
//     routing: ["s b k", "s b"]         # choices of experts and margins; default: as value
//     scales: ["s b k", "r k"]          # scale, by slot; default: whole
//     operands: ["s b n[tp] d"]         # operand, by slot; default: inputs, value of the
//                                       # parameter `weight` below the path, grad
// ```
// clang-format on
//
// dims.h explains the strings. A single string stands for slot 0. The first entry whose path
// matches decides, even if a later one matches as well. If this entry does not mention a tensor, or
// no entry matches, the tensor lies where the program has derived it (Annotations::derive). If the
// program has not, TTrace assumes that it is whole on every rank and marks the record. If the
// ranks' tensors then contradict each other, the comparison infers the placement from the values
// (docs/infer.md). A dimension named `b` holds samples; noise passes permute them and put the
// records back in order.
//
// Thread-safety: values. Any number of threads may call the const functions of one object.
#pragma once

#include <ttrace/dims.h>
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

class Annotations {
 public:
  // Without entries every tensor is whole.
  Annotations() = default;

  // Reads a file. Throws UsageError with path and line where the file cannot be read, a key is
  // unknown, or a dims string is wrong.
  static Annotations load(const std::string& file);
  // The same for the text of a file; messages call it `origin`.
  static Annotations parse(const std::string& text, const std::string& origin = "annotations");

  // Sets the logical size of a dimension. Returns *this, so that it chains after load().
  Annotations& size(const std::string& name, std::int64_t value);
  // Tensors whose path matches the pattern `path` do not use `axis`, whatever their entries say: a
  // layer that every rank of the axis computes as a whole. Returns *this.
  Annotations& without(const std::string& axis, const std::string& path);
  // Tensors whose path matches the pattern `path` use the axis `other` where their entries say
  // `axis`: a layer that divides the ranks in a way of its own. Returns *this.
  Annotations& instead(const std::string& axis, const std::string& other, const std::string& path);
  // Adds what the program itself knows of one tensor. `field` is a key of an entry ("value",
  // "grad", "inputs", ...), `path` is no pattern. If an entry of the file says where that tensor
  // lies, the entry decides. A second call for the same tensor replaces the first. Returns *this.
  // Throws UsageError for an unknown field, a path that is none, or wrong dims.
  Annotations& derive(const std::string& path,
                      std::string_view field,
                      int slot,
                      std::string_view dims);
  // Sets the names that have a role of docs/parallelism.md, "Names of your own": patterns separated
  // by spaces, in which `*` stands for any letters. If the file names the role, it overrides this
  // call. Returns *this. Throws UsageError for an unknown role or no pattern.
  Annotations& role(const std::string& name, const std::string& patterns);
  // The sizes of the file and of size().
  [[nodiscard]] const Sizes& sizes() const { return sizes_; }
  [[nodiscard]] const std::map<std::string, std::string>& roles() const { return roles_; }

  // The dimensions that an entry gives a tensor, or else those that the program derived. Nothing:
  // neither says anything, so TTrace assumes that the tensor is whole.
  [[nodiscard]] std::optional<DimsSpec> find(Kind kind,
                                             const std::string& path,
                                             int slot = 0) const;

  // Where the tensor of the rank that `layout` describes lies: place() of what find() returns, or
  // whole(). Throws UsageError that names path and kind where the annotation does not fit the
  // shape.
  [[nodiscard]] Placement placement(Kind kind,
                                    const std::string& path,
                                    int slot,
                                    std::span<const std::int64_t> local_shape,
                                    const Layout& layout) const;

 private:
  using Slots = std::vector<std::optional<DimsSpec>>;
  using Fields = std::map<std::string, Slots, std::less<>>;
  struct Entry {
    std::string path;  // pattern
    Fields fields;
  };
  [[nodiscard]] static std::optional<DimsSpec> find_in(const Fields& fields, Kind kind, int slot);
  struct Exchange {
    std::string axis;
    std::string other;  // empty: none
    std::string path;   // pattern
  };
  Annotations& exchange(const std::string& axis, const std::string& other, const std::string& path);
  std::vector<Entry> entries_;
  std::map<std::string, Fields, std::less<>> derived_;  // by path
  std::vector<Exchange> exchanges_;
  Sizes sizes_;
  std::map<std::string, std::string> roles_;  // patterns by role
};

// Whether a dotted path matches a pattern, in which `*` stands for one part and `**` for any
// number.
[[nodiscard]] bool path_matches(std::string_view pattern, std::string_view path);

}  // namespace ttrace
