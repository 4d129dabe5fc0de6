#include "patched_file.h"
#include "property.h"
#include "scratch.h"
#include "support/earlier_version.h"
#include "trace/file/noise_table.h"

namespace {

using namespace ttrace;

std::string good_file(const std::string& folder) {
  NoisePass pass{.seed = 1, .rows = {}};
  for (const char* id :
       {"s0/m0/output/fc1/0", "s0/m1/grad_output/fc1/0#1~", "s0/main_grad/a.b/0"}) {
    pass.rows.push_back({.id = parse_tensor_id(id),
                         .sum_squared = 1e-6,
                         .max_abs = 1e-3,
                         .along_reference = -1e-7,
                         .covered = pass.rows.empty(),
                         .slices = {4e-7, 6e-7}});
  }
  write_noise(folder, pass);
  testing::take_digests_from(noise_file(folder, 1));  // so that what lies behind them is tried
  return fuzz::read_all(noise_file(folder, 1));
}

bool equal(const NoiseRow& left, const NoiseRow& right) {
  return left.id == right.id && left.sum_squared == right.sum_squared &&
         left.max_abs == right.max_abs && left.nonfinite == right.nonfinite &&
         left.along_reference == right.along_reference && left.covered == right.covered &&
         left.slices == right.slices;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch folder;
  static const std::string good = good_file(folder.path());
  fuzz::write_all(noise_file(folder.path(), 1), fuzz::patched(good, data, size));
  fuzz::allow_refusal([&] {
    const auto first = read_noise(folder.path());
    write_noise(folder.path(), first.at(0));
    const auto second = read_noise(folder.path());
    const auto& rows = first.at(0).rows;
    fuzz::require(
        std::equal(
            rows.begin(), rows.end(), second.at(0).rows.begin(), second.at(0).rows.end(), equal),
        "a noise table is read back as another one");
  });
  return 0;
}
