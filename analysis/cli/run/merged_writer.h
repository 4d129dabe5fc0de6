// Logical tensors for other tools, each named by its id.
//
// Thread-safety: one thread at a time; HDF5 has one lock per process.
#pragma once

#include "trace/file/manifest.h"
#include "trace/merge/merge.h"

#include <ttrace/tensor_id.h>

#include <memory>
#include <string>

namespace ttrace {

class MergedWriter {
 public:
  virtual ~MergedWriter() = default;           // without commit() nothing is left
  MergedWriter(const MergedWriter&) = delete;  // owns an open file
  MergedWriter& operator=(const MergedWriter&) = delete;

  // Requires: tensor.has_tensor(), an id that was not there before. Throws FormatError.
  virtual void append(const TensorId& id, const MergeResult& tensor) = 0;
  // Gives what was written its name. Throws FormatError; then nothing has it.
  virtual void commit() = 0;

 protected:
  MergedWriter() = default;
};

// By what `path` ends in: `.h5` and `.hdf5` are a file of HDF5, `.safetensors` one of safetensors,
// and a `/` a folder of numpy's files, one per tensor. Throws UsageError for other names, and
// FormatError with path and cause, also where `path` exists.
[[nodiscard]] std::unique_ptr<MergedWriter> merged_writer(const std::string& path,
                                                          const Manifest& manifest);

// Every tensor is a dataset whose path is its id.
[[nodiscard]] std::unique_ptr<MergedWriter> merged_hdf5(const std::string& file,
                                                        const Manifest& manifest);
// https://github.com/huggingface/safetensors: a header of JSON, then the bytes.
[[nodiscard]] std::unique_ptr<MergedWriter> merged_safetensors(const std::string& file,
                                                               const Manifest& manifest);
// FOLDER/ID.npy. BF16, F16 and FP8 become F32, which holds all their values, because numpy has no
// names for most of them.
[[nodiscard]] std::unique_ptr<MergedWriter> merged_npy(const std::string& folder);

}  // namespace ttrace
