#include "analysis/cli/run/merged_writer.h"
#include "trace/file/hdf5_tensor.h"
#include "trace/file/trace_schema.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

namespace ttrace {
namespace {

constexpr std::int32_t kMergedVersion = 1;
constexpr const char* kMergedAttribute = "ttrace_merged";
constexpr const char* kTypeAttribute = "ttrace_dtype";

class MergedHdf5 : public MergedWriter {
 public:
  MergedHdf5(std::string file, const Manifest& manifest)
      : output_(
            std::make_unique<Hdf5Output>(std::move(file), kOwnDatasetBytes, kDatasetAlignment)) {
    output_->write_attribute(kMergedAttribute, kMergedVersion);
    output_->write_attribute("pass", manifest.pass);
    output_->write_attribute("precision", manifest.precision);
    output_->write_attribute("world_size", std::int32_t{manifest.world_size});
  }

  ~MergedHdf5() override {
    const QuietHdf5 quiet;
    if (!committed_) {
      const std::string temporary = output_->path();
      output_.reset();
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
    }
  }

  void append(const TensorId& id, const MergeResult& tensor) override {
    const QuietHdf5 quiet;
    const std::string name = to_string(id);
    create_groups(name);
    write_dataset(*output_,
                  name,
                  hdf5_type(tensor.type, output_->path()),
                  {tensor.shape.begin(), tensor.shape.end()},
                  tensor.bytes);
    output_->write_attribute(kTypeAttribute, std::string(name_of(tensor.type)), name.c_str());
    output_->check_written();
  }

  void commit() override {
    const QuietHdf5 quiet;
    output_->finish();
    committed_ = true;
  }

 private:
  // Ids are paths: step, micro-batch, kind and module become groups.
  void create_groups(const std::string& id) {
    for (std::size_t slash = id.find('/'); slash != std::string::npos;
         slash = id.find('/', slash + 1)) {
      const std::string name = id.substr(0, slash);
      if (groups_.insert(name).second) {
        const Hdf5Id group(
            H5Gcreate2(output_->id(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
            H5Gclose,
            output_->path(),
            "create the group '" + name + "'");
      }
    }
  }

  std::unique_ptr<Hdf5Output> output_;
  std::set<std::string> groups_;
  bool committed_ = false;
};

}  // namespace

std::unique_ptr<MergedWriter> merged_hdf5(const std::string& file, const Manifest& manifest) {
  const QuietHdf5 quiet;
  return std::make_unique<MergedHdf5>(file, manifest);
}

}  // namespace ttrace
