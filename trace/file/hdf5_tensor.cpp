#include "trace/file/hdf5_tensor.h"

#include <ttrace/error.h>

namespace ttrace {
namespace {

// A custom float of 2 bytes: sign, `exponent_bits`, `mantissa_bits`.
Hdf5Id two_byte_float(std::size_t exponent_bits, std::size_t bias, const std::string& path) {
  constexpr const char* kAction = "describe an element type";
  const std::size_t mantissa_bits = 15 - exponent_bits;
  Hdf5Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, path, kAction);
  // Fields before precision before size, or HDF5 refuses for a moment overlapping bits.
  hdf5_check(
      H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits), path, kAction);
  hdf5_check(H5Tset_precision(type.get(), 16), path, kAction);
  hdf5_check(H5Tset_ebias(type.get(), bias), path, kAction);
  hdf5_check(H5Tset_size(type.get(), 2), path, kAction);
  return type;
}

}  // namespace

Hdf5Id hdf5_type(ElementType type, const std::string& path) {
  const auto standard = [&](hid_t predefined) {
    return Hdf5Id(H5Tcopy(predefined), H5Tclose, path, "describe an element type");
  };
  switch (type) {
    case ElementType::kF64:
      return standard(H5T_IEEE_F64LE);
    case ElementType::kF32:
      return standard(H5T_IEEE_F32LE);
    case ElementType::kF16:
      return two_byte_float(5, 15, path);
    case ElementType::kBF16:
      return two_byte_float(8, 127, path);
    case ElementType::kI64:
      return standard(H5T_STD_I64LE);
    case ElementType::kI32:
      return standard(H5T_STD_I32LE);
    case ElementType::kU8:
    case ElementType::kBool:
    case ElementType::kE4M3:  // codes: HDF5 takes those with the largest exponent for Inf and NaN
    case ElementType::kE5M2:
    case ElementType::kE8M0:
    case ElementType::kE2M1:
      return standard(H5T_STD_U8LE);
  }
  TTRACE_THROW(InternalError, "element type ", static_cast<int>(type), " has no HDF5 type");
}

Hdf5Id create_dataset(const Hdf5Output& output,
                      const std::string& name,
                      const Hdf5Id& type,
                      const std::vector<hsize_t>& extents) {
  const std::string& path = output.path();
  const std::string action = "write dataset '" + name + "'";
  const int rank = static_cast<int>(extents.size());
  const Hdf5Id space(
      rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, extents.data(), nullptr),
      H5Sclose,
      path,
      action);
  const Hdf5Id creation = contiguous_dataset_properties(path);
  return {H5Dcreate2(output.id(),
                     name.c_str(),
                     type.get(),
                     space.get(),
                     H5P_DEFAULT,
                     creation.get(),
                     H5P_DEFAULT),
          H5Dclose,
          path,
          action};
}

void write_dataset(const Hdf5Output& output,
                   const std::string& name,
                   const Hdf5Id& type,
                   const std::vector<hsize_t>& extents,
                   std::span<const std::byte> bytes) {
  const std::string action = "write dataset '" + name + "'";
  Hdf5Id dataset = create_dataset(output, name, type, extents);
  // Memory and file type are the same, so HDF5 converts nothing.
  hdf5_check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
             output.path(),
             action);
  dataset.close(output.path(), action);
}

}  // namespace ttrace
