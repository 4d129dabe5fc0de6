#include "trace/file/hdf5_output.h"

#include "trace/file/hdf5_format.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <sys/stat.h>
#include <utility>

namespace ttrace {
namespace {

// Between flushes, nothing may reach the metadata on disk; otherwise a killed writer could leave a
// mixture. So the cache never evicts, which HDF5 allows only if all automatic resizing is off.
void forbid_evictions(hid_t access, const std::string& path) {
  H5AC_cache_config_t cache = {};
  cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  hdf5_check(H5Pget_mdc_config(access, &cache), path, "read the cache settings");
  cache.evictions_enabled = false;
  cache.incr_mode = H5C_incr__off;
  cache.flash_incr_mode = H5C_flash_incr__off;
  cache.decr_mode = H5C_decr__off;
  hdf5_check(H5Pset_mdc_config(access, &cache), path, "set the cache");
}

Hdf5Id create_file(const std::string& path,
                   WriteTarget* target,
                   std::size_t aligned_from,
                   std::size_t alignment) {
  constexpr const char* kSettings = "set how the file is written";
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, kSettings);
  hdf5_check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), path, kSettings);
  hdf5_check(H5Pset_alignment(access.get(), aligned_from, alignment), path, kSettings);
  hdf5_check(H5Pset_meta_block_size(access.get(), kMetadataBlockBytes), path, kSettings);
  hdf5_check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_SEMI), path, kSettings);
  use_write_target(access.get(), target, path);
  forbid_evictions(access.get(), path);
  const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, path, kSettings);
  hdf5_check(H5Pset_obj_track_times(creation.get(), false), path, kSettings);
  return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
          H5Fclose,
          path,
          "create the HDF5 file"};
}

void write_scalar_attribute(
    hid_t file, const std::string& path, const char* name, hid_t type, const void* value) {
  const std::string action = std::string("write attribute ") + name;
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose, path, action);
  const Hdf5Id attribute(
      H5Acreate2(file, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, path, action);
  hdf5_check(H5Awrite(attribute.get(), type, value), path, action);
}

}  // namespace

Hdf5Output::Hdf5Output(std::string file, std::size_t aligned_from, std::size_t alignment)
    : file_(std::move(file)),
      temporary_(temporary_name(file_)),
      lock_(open_temporary(file_)),
      target_(std::make_unique<WriteTarget>(WriteTarget{lock_.get(), ::getpid(), 0})),
      hdf5_(create_file(temporary_, target_.get(), aligned_from, alignment)) {}

void Hdf5Output::write_attribute(const char* name, std::int32_t value) {
  write_scalar_attribute(id(), temporary_, name, H5T_STD_I32LE, &value);
  protect(name, digest_of_text(std::to_string(value)));
}

void Hdf5Output::write_attribute(const char* name, std::uint64_t value) {
  write_scalar_attribute(id(), temporary_, name, H5T_STD_U64LE, &value);
  protect(name, digest_of_text(std::to_string(value)));
}

void Hdf5Output::write_attribute(const char* name, const std::string& text, const char* object) {
  const Hdf5Id type = text_type(text.size(), temporary_);
  const Hdf5Id target(
      H5Oopen(id(), object, H5P_DEFAULT), H5Oclose, temporary_, "open an object for attributes");
  write_scalar_attribute(target.get(), temporary_, name, type.get(), text.c_str());
  if (object == std::string_view("/")) {
    protect(name, digest_of_text(text));
  }
}

void Hdf5Output::remove(const std::string& table) {
  hdf5_check(H5Ldelete(id(), table.c_str(), H5P_DEFAULT), temporary_, "remove the table " + table);
  digests_.erase(table);
}

void Hdf5Output::check_written() const {
  TTRACE_CHECK(target_->error == 0,
               FormatError,
               temporary_,
               ": the file cannot be written: ",
               system_error_text(target_->error),
               kStorageRemedy);
}

void Hdf5Output::flush() {
  hdf5_check(H5Fflush(id(), H5F_SCOPE_LOCAL), temporary_, "flush");
  check_written();
}

void Hdf5Output::finish() {
  write_attribute(kDigestsAttribute, to_text(digests_));
  flush();
  hdf5_.close(temporary_, "close the file");
  check_written();
  publish(file_, lock_);
}

Hdf5Id contiguous_dataset_properties(const std::string& path) {
  constexpr const char* kSettings = "set how datasets are written";
  Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, path, kSettings);
  hdf5_check(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), path, kSettings);
  hdf5_check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), path, kSettings);
  hdf5_check(H5Pset_obj_track_times(creation.get(), false), path, kSettings);
  return creation;
}

}  // namespace ttrace
