#include "property.h"

#include <ttrace/tensor_id.h>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ttrace;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::allow_refusal([&] {
    const TensorId id = parse_tensor_id(text);
    fuzz::require(to_string(id) == text, "an id has two spellings");
    fuzz::require(parse_tensor_id(to_string(id)) == id, "an id is read back as another one");
  });
  return 0;
}
