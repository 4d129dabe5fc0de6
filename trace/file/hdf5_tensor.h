// A tensor as a contiguous HDF5 dataset that other tools read: f16 and bf16 are custom floats.
//
// Thread-safety: one thread at a time.
#pragma once

#include "trace/file/hdf5_output.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Throws FormatError with `path`.
[[nodiscard]] Hdf5Id hdf5_type(ElementType type, const std::string& path);

// One that is not written yet, its bytes in one piece. Throws FormatError.
[[nodiscard]] Hdf5Id create_dataset(const Hdf5Output& output,
                                    const std::string& name,
                                    const Hdf5Id& type,
                                    const std::vector<hsize_t>& extents);

// Writes a dataset of the given extents; none is a scalar. Groups that `name` passes through exist.
// Throws FormatError.
void write_dataset(const Hdf5Output& output,
                   const std::string& name,
                   const Hdf5Id& type,
                   const std::vector<hsize_t>& extents,
                   std::span<const std::byte> bytes);

}  // namespace ttrace
