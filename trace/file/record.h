// One captured tensor of one rank: a row of the trace index.
#pragma once

#include "trace/base/keep.h"
#include "trace/place/sample_dim.h"

#include <ttrace/element_type.h>
#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Where a file holds a record's sketch.
struct SketchPlace {
  std::string dataset;
  std::uint64_t offset = 0;  // in bytes, within the dataset
};

struct Record {
  TensorId id;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;  // local, row-major and contiguous in the file
  Placement placement;              // placement.local_shape() == shape
  std::uint64_t order = 0;          // running number of the rank, in execution order
  std::uint64_t time = 0;           // ns since the step began there, see RankFile::began()
  bool inferred = false;            // owner found by its parameters, not by a scope
  // Nobody said where it lies: `placement` is a guess, "whole" where there is nothing better.
  bool undeclared = false;
  // Which dimension holds samples. Nothing: none does, or nobody said which.
  std::optional<SampleDim> samples = {};
  // A value that the program computes no gradient of, although gradients were on.
  bool needs_no_gradient = false;
  // In noise passes: code that the observer does not see made values of it, and no noise was put on
  // them.
  bool lacks_noise = false;

  // Filled by TraceWriter.
  Keep keep = Keep::kBytes;
  std::optional<SketchPlace> sketch = {};
  std::string dataset;          // where the bytes are: "/blob/000000" or a name of its own
  std::uint64_t offset = 0;     // in bytes, within the dataset
  std::uint64_t bytes = 0;      // 0 where they are not kept
  std::uint64_t digest = 0;     // XXH3-64 of the bytes, kept or not
  double norm = 0.0;            // Frobenius norm of the finite local values, padding included
  double max_abs = 0.0;         // largest finite magnitude
  std::uint64_t nonfinite = 0;  // number of NaN and Inf
};

// Throws FormatError for a negative extent or a product beyond 63 bits.
[[nodiscard]] std::int64_t element_count(const std::vector<std::int64_t>& shape);

// "4x128"; "scalar".
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace ttrace
