// Reads a stored trace: which tensors it holds, what each rank recorded, and the logical tensors
// that the ranks' parts make up.
//
//   const auto trace = ttrace::StoredTrace::open("runs/1/candidate");
//   for (const ttrace::TensorId& id : trace.ids()) {
//     const ttrace::MergedTensor tensor = trace.merged(id);
//     std::printf("%s %zu dimensions\n", to_string(id).c_str(), tensor.shape.size());
//   }
//
// A trace directory is what a traced program wrote: RUN/reference or RUN/candidate of a
// `ttrace check -o RUN`. docs/trace_format.md describes the files.
//
// Thread-safety: a StoredTrace is immutable. Any number of threads may call it, except that open()
// and a running ttrace::Session must not be used at the same time (HDF5 has one lock).
#pragma once

#include <ttrace/element_type.h>
#include <ttrace/run_description.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// What one rank recorded of a tensor.
struct StoredRecord {
  int rank = 0;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;  // of this rank's part
};

// A tensor with its values. It owns them, so it may outlive the trace.
struct MergedTensor {
  // Element type of `bytes`. F64 where partial sums were added or a scale was applied.
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;  // logical: as a single device would have it
  std::vector<std::byte> bytes;     // row-major and contiguous
  // One sentence for every contradiction between the ranks that still leaves a value, such as
  // replicas that differ (the lowest rank's value counts). Empty: the ranks agree.
  std::vector<std::string> contradictions;

  // All elements as doubles, in row-major order. Exact, except for integers beyond 2^53.
  [[nodiscard]] std::vector<double> values() const;
};

class StoredTrace {
 public:
  // Opens a finished trace. Throws FormatError that names the path and the cause where the
  // directory holds no trace, a rank's file is missing or damaged, or a newer TTrace wrote it.
  [[nodiscard]] static StoredTrace open(const std::string& directory);
  ~StoredTrace();
  StoredTrace(StoredTrace&&) noexcept;
  StoredTrace& operator=(StoredTrace&&) noexcept;
  StoredTrace(const StoredTrace&) = delete;  // owns mapped files
  StoredTrace& operator=(const StoredTrace&) = delete;

  // What the manifest says. References stay valid as long as this object.
  // "reference", "candidate", "forced", "golden" or "imported".
  [[nodiscard]] const std::string& pass() const;
  [[nodiscard]] int world_size() const;                          // number of ranks
  [[nodiscard]] const std::vector<std::int64_t>& steps() const;  // traced iterations, ascending
  [[nodiscard]] const Section& layout() const;                   // size of every axis, as text
  // What the program said about itself (Session::describe).
  [[nodiscard]] RunDescription description() const;

  // All recorded tensors, ascending by step, micro-batch, kind and path.
  [[nodiscard]] std::vector<TensorId> ids() const;
  // The tensor's records in the order of the ranks. Empty: no rank recorded it.
  [[nodiscard]] std::vector<StoredRecord> records(const TensorId& id) const;
  // The logical tensor. Throws UsageError for an id that no rank recorded, and FormatError where
  // the ranks' parts leave no value, such as a part that no rank holds.
  [[nodiscard]] MergedTensor merged(const TensorId& id) const;
  // The same for the text of an id, "s0/m0/output/decoder.final_layernorm/0". Throws also
  // FormatError for a text that is no id.
  [[nodiscard]] MergedTensor merged(std::string_view id) const;

 private:
  struct Impl;
  explicit StoredTrace(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace ttrace
