#include "patched_file.h"
#include "property.h"
#include "scratch.h"
#include "support/earlier_version.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <cstddef>

namespace {

using namespace ttrace;

Record record_of(const std::string& path, std::vector<std::int64_t> shape) {
  Record record;
  record.id = {.step = 0, .microbatch = 0, .kind = Kind::kOutput, .path = path};
  record.type = ElementType::kF32;
  record.shape = std::move(shape);
  record.placement = whole(record.shape);
  return record;
}

std::string good_file(const std::string& folder) {
  const std::string file = folder + "/good.h5";
  Layout layout{.rank = 1, .world_size = 2, .axes = {}};
  TraceWriter writer(file, layout.add("tp", 2, 1), {.began = 1});
  writer.append(record_of("scalar", {}), std::vector<std::byte>(4));
  Record cut = record_of("fc1", {4, 6});
  cut.placement = parse_placement("8/4:0+4+4 6 partial=1/2:cp scale=0x1p-1");
  writer.append(cut, std::vector<std::byte>(96));
  writer.append(record_of("large", {128, 128}), std::vector<std::byte>(65536));
  writer.note("a remark");
  writer.commit();
  testing::take_digests_from(file);  // so that what lies behind them is tried
  return fuzz::read_all(file);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch folder;
  static const std::string good = good_file(folder.path());
  const std::string file = folder.path() + "/fuzzed.h5";
  fuzz::write_all(file, fuzz::patched(good, data, size));
  fuzz::allow_refusal([&] {
    const RankFile read(file);
    unsigned sum = 0;
    for (const Record& record : read.records()) {
      fuzz::require(parse_tensor_id(to_string(record.id)) == record.id, "ids differ");
      fuzz::require(parse_placement(to_string(record.placement)) == record.placement,
                    "placements differ");
      for (const std::byte byte : read.bytes(record)) {
        sum += std::to_integer<unsigned>(byte);
      }
    }
    fuzz::require(sum < (1U << 31), "reads every byte");
  });
  return 0;
}
