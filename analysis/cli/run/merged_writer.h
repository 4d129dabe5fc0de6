// One HDF5 file of logical tensors for other tools, every tensor a dataset named by its id.
//
// Thread-safety: one thread at a time; HDF5 has one lock per process.
#pragma once

#include "trace/file/manifest.h"
#include "trace/merge/merge.h"

#include <ttrace/element_type.h>
#include <ttrace/export.h>
#include <ttrace/tensor_id.h>

#include <memory>
#include <string>

namespace ttrace {

class TTRACE_API MergedWriter {
 public:
  // Creates `<file>.tmp` with what the manifest says. Throws FormatError with path and cause, also
  // where `file` exists.
  MergedWriter(std::string file, const Manifest& manifest);
  ~MergedWriter();                             // without commit() the `.tmp` is removed
  MergedWriter(const MergedWriter&) = delete;  // owns an open file
  MergedWriter& operator=(const MergedWriter&) = delete;

  // Requires: tensor.has_tensor(), an id that was not there before. Throws FormatError.
  void append(const TensorId& id, const MergeResult& tensor);

  // Closes, fsyncs, renames. Throws FormatError; then nothing is renamed.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace
