// The file in which users say how tensors are cut: any text is taken or refused with a sentence.
#include "property.h"

#include <ttrace/annotations.h>

#include <array>
#include <cstdint>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ttrace;
  fuzz::allow_refusal([&] {
    const Annotations annotations = Annotations::parse(std::string(fuzz::text_of(data, size)));
    Layout layout{.rank = 1, .world_size = 2, .axes = {}};
    layout.add("tp", 2, 1).add("sp", 2, 1, "tp");
    constexpr std::array<std::int64_t, 3> kShape = {4, 2, 8};
    for (const char* path : {"embedding.weight", "decoder.layers.0.mlp", "loss"}) {
      for (const Kind kind : {Kind::kParam, Kind::kOutput, Kind::kGradInput}) {
        fuzz::allow_refusal(
            [&] { validate(annotations.placement(kind, path, 0, kShape, layout)); });
      }
    }
  });
  return 0;
}
