#include "property.h"
#include "scratch.h"
#include "trace/file/manifest.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ttrace;
  static const fuzz::Scratch folder;
  const std::string file = folder.path() + "/manifest.json";
  fuzz::write_all(file, fuzz::text_of(data, size));
  fuzz::allow_refusal([&] {
    write_manifest(folder.path(), read_manifest(folder.path()));
    const std::string once = fuzz::read_all(file);
    write_manifest(folder.path(), read_manifest(folder.path()));
    fuzz::require(fuzz::read_all(file) == once, "a manifest is read back as another one");
  });
  return 0;
}
