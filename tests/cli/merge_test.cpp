// The merged file is read back through HDF5 alone, as other tools do.
#include "trace_fixture.h"

#include <hdf5.h>

#include <cstdint>
#include <filesystem>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file opened with the C API; closes what it opened.
class Hdf5File {
 public:
  explicit Hdf5File(const std::string& path)
      : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {}
  ~Hdf5File() { H5Fclose(file_); }
  Hdf5File(const Hdf5File&) = delete;  // owns a handle
  Hdf5File& operator=(const Hdf5File&) = delete;

  // Converted by HDF5, which must therefore know the type.
  [[nodiscard]] std::vector<double> values(const std::string& name) const {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    const hid_t space = H5Dget_space(dataset);
    std::vector<double> result(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, result.data()), 0);
    H5Sclose(space);
    H5Dclose(dataset);
    return result;
  }

  [[nodiscard]] std::string type(const std::string& name) const {
    const hid_t attribute =
        H5Aopen_by_name(file_, name.c_str(), "ttrace_dtype", H5P_DEFAULT, H5P_DEFAULT);
    const hid_t type = H5Aget_type(attribute);
    std::string text(H5Tget_size(type), '\0');
    EXPECT_GE(H5Aread(attribute, type, text.data()), 0);
    H5Tclose(type);
    H5Aclose(attribute);
    return text;
  }

  [[nodiscard]] bool has(const std::string& name) const {
    return H5Lexists(file_, name.c_str(), H5P_DEFAULT) > 0;
  }

 private:
  hid_t file_;
};

using Merge = TraceCliTest;

TEST_F(Merge, EveryTensorIsADatasetNamedByItsId) {
  write();
  const ProcessResult result = ttrace({"merge", "candidate", "-o", "merged.h5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "3 tensors written to merged.h5\n");
  EXPECT_THAT(result.err, IsEmpty());
  const Hdf5File file(folder_ / "merged.h5");
  EXPECT_THAT(file.values("s0/m0/output/mlp.fc1/0"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(file.type("s0/m0/output/mlp.fc1/0"), "bf16");
  EXPECT_THAT(file.values("s0/m0/data/tokens/0"), ElementsAre(3, 1, 2));
  EXPECT_EQ(file.type("s0/m0/data/tokens/0"), "i64");
  // Addends are summed in double.
  EXPECT_THAT(file.values("s0/main_grad/mlp.fc1.bias/0"), ElementsAre(1, 0));
  EXPECT_EQ(file.type("s0/main_grad/mlp.fc1.bias/0"), "f64");
  EXPECT_FALSE(fs::exists(folder_ / "merged.h5.tmp"));
}

TEST_F(Merge, AllElementTypesAndShapesAreReadable) {
  for (const ElementType type : {ElementType::kF64,
                                 ElementType::kF32,
                                 ElementType::kF16,
                                 ElementType::kBF16,
                                 ElementType::kI64,
                                 ElementType::kI32,
                                 ElementType::kU8,
                                 ElementType::kBool}) {
    reference_.add(0, {"s0/m0/output/" + std::string(name_of(type)) + "/0", {1, 0}, type});
  }
  reference_.add(0, {"s0/scalar/norm/0", {2.5}});
  reference_.add(0, {"s0/m0/output/none/0", {}, ElementType::kF32, {0}});
  reference_.add(0, {"s0/m0/output/again/0#1", {4}, ElementType::kF32, {1}});
  write();
  ASSERT_EQ(ttrace({"merge", "reference", "-o", "merged.h5"}).exit_code, 0);
  const Hdf5File file(folder_ / "merged.h5");
  for (const char* type : {"f64", "f32", "f16", "bf16", "i64", "i32", "u8", "bool"}) {
    const std::string name = "s0/m0/output/" + std::string(type) + "/0";
    EXPECT_THAT(file.values(name), ElementsAre(1, 0)) << type;
    EXPECT_EQ(file.type(name), type);
  }
  EXPECT_THAT(file.values("s0/scalar/norm/0"), ElementsAre(2.5));
  EXPECT_THAT(file.values("s0/m0/output/none/0"), IsEmpty());
  EXPECT_THAT(file.values("s0/m0/output/again/0#1"), ElementsAre(4));
}

TEST_F(Merge, PartsThatContradictEachOtherAreNamedAndLeftOut) {
  candidate_.add(0, {"s0/m0/output/torn/0", {1, 2}, ElementType::kF32, {2}, part(4, 0, 2)});
  candidate_.add(0, {"s0/m0/output/unlike/0", {1}, ElementType::kF32, {1}});
  candidate_.add(1, {"s0/m0/output/unlike/0", {2}, ElementType::kF32, {1}});
  write();
  const ProcessResult result = ttrace({"merge", "candidate", "-o", "merged.h5"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("s0/m0/output/torn/0: gap: no rank holds [2:4]"));
  EXPECT_THAT(result.out, HasSubstr("s0/m0/output/unlike/0: replicas_disagree: "));
  EXPECT_THAT(result.out,
              HasSubstr("3 tensors written to merged.h5; 2 left out, because their parts "
                        "contradict each other\n"));
  const Hdf5File file(folder_ / "merged.h5");
  EXPECT_TRUE(file.has("s0/m0/output/mlp.fc1/0"));
  EXPECT_FALSE(file.has("s0/m0/output/torn"));
}

TEST_F(Merge, SelectionIsThatOfTheOtherCommands) {
  write();
  const ProcessResult result =
      ttrace({"merge", "candidate", "-o", "merged.h5", "--kinds", "output"});
  EXPECT_EQ(result.out, "1 tensor written to merged.h5; the selection leaves out 2\n");
  EXPECT_FALSE(Hdf5File(folder_ / "merged.h5").has("s0/main_grad"));
}

TEST_F(Merge, NothingSelectedLeavesNoFile) {
  write();
  const ProcessResult result =
      ttrace({"merge", "candidate", "-o", "merged.h5", "--filter", "nosuch"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the selection leaves out all 3 tensors"));
  EXPECT_FALSE(fs::exists(folder_ / "merged.h5"));
  EXPECT_FALSE(fs::exists(folder_ / "merged.h5.tmp"));
}

TEST_F(Merge, ExistingFileStaysAsItIs) {
  write();
  std::ofstream(folder_ / "merged.h5") << "mine";
  const ProcessResult result = ttrace({"merge", "candidate", "-o", "merged.h5"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "ttrace: error: merged.h5 exists already; choose another name for -o, or remove it\n");
  EXPECT_EQ(file("merged.h5"), "mine");
}

TEST_F(Merge, OutputIsNeeded) {
  write();
  EXPECT_THAT(ttrace({"merge", "candidate"}).err, HasSubstr("pass -o FILE.h5"));
}

}  // namespace
}  // namespace ttrace::testing
