// The file in which users declare which names mean the same: any text is accepted, or refused with
// a sentence.
#include "analysis/rename/rename_map.h"
#include "property.h"

#include <algorithm>
#include <cstdint>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ttrace;
  fuzz::allow_refusal([&] {
    const RenameMap map = RenameMap::parse(std::string(fuzz::text_of(data, size)));
    for (const char* text : {"s0/param/layers.0.attention.wq.weight/0",
                             "s0/m0/output/decoder.layers.0.self_attention.core_attention/0",
                             "s0/m1/input/h_1/1"}) {
      const TensorId id = parse_tensor_id(text);
      for (const Names names : {Names::kReference, Names::kCandidate}) {
        const Counterparts found = map.find(names, id);
        const auto& own = found.of(names);
        fuzz::require(std::find(own.begin(), own.end(), id) != own.end(),
                      "a tensor is not among those that it was found as");
        static_cast<void>(map.dims(found, id.kind, names, 3));
      }
    }
  });
  return 0;
}
