// Which dimension of a tensor holds samples, and how that is stored.
#include "trace/place/sample_dim.h"

#include "support/temporary_directory.h"
#include "trace/file/rank_file.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace ttrace {
namespace {

Layout data_parallel() {
  Layout layout;
  layout.rank = 1;
  layout.world_size = 2;
  layout.add("dp", 2, 1);
  return layout;
}

std::optional<SampleDim> of(const char* dims,
                            const std::vector<std::int64_t>& shape,
                            const Sizes& sizes = {}) {
  const DimsSpec spec = parse_dims(dims);
  return sample_dim(spec, place(spec, shape, data_parallel(), sizes), sizes);
}

TEST(SampleDimension, IsTheOneNamedB) {
  EXPECT_EQ(of("s b[dp] h", {8, 2, 4}), (SampleDim{1, 4, 1}));
  EXPECT_EQ(of("? b c", {3, 4}), (SampleDim{0, 3, 1}));
  EXPECT_EQ(of("a c", {3, 4}), std::nullopt);
}

TEST(SampleDimension, MayHoldPositionsOfSamples) {
  EXPECT_EQ(of("(b[dp]*5) h", {10, 4}), (SampleDim{0, 4, 5}));
  EXPECT_EQ(of("(s*b) h", {10, 4}, {{"s", 5}}), (SampleDim{0, 2, 1}));
  EXPECT_EQ(of("(3*b*2) h", {24, 4}), (SampleDim{0, 4, 2}));
}

TEST(SampleDimension, PrintsAndIsReadBack) {
  const Placement placement = whole(std::vector<std::int64_t>{3, 8});
  const SampleDim samples{1, 4, 2};
  EXPECT_EQ(to_string(samples), "1:4x2");
  EXPECT_EQ(parse_sample_dim("1:4x2", placement), samples);
  EXPECT_EQ(to_string(std::nullopt), "");
  EXPECT_EQ(parse_sample_dim("", placement), std::nullopt);
  for (const char* const text :
       {"1", "1:4", "1x4:2", "2:4x2", "1:3x2", "1:0x1", "a:1x1", "1:4x2 "}) {
    EXPECT_THROW(static_cast<void>(parse_sample_dim(text, placement)), FormatError) << text;
  }
}

TEST(SampleDimension, StandsInTheIndexOfAFile) {
  const testing::TemporaryDirectory folder;
  const std::string path = step_file(folder.path(), 0, 0);
  TraceWriter writer(path, Layout());
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  Record record;
  record.id = parse_tensor_id("s0/m0/output/fc/0");
  record.shape = {2, 3};
  record.placement = whole(record.shape);
  record.samples = SampleDim{0, 2, 1};
  writer.append(record, std::as_bytes(std::span(values)));
  record.id = parse_tensor_id("s0/m0/output/table/0");
  record.samples.reset();
  writer.append(record, std::as_bytes(std::span(values)));
  writer.commit();
  const RankFile file(path);
  EXPECT_EQ(file.records()[0].samples, (SampleDim{0, 2, 1}));
  EXPECT_EQ(file.records()[1].samples, std::nullopt);
}

}  // namespace
}  // namespace ttrace
