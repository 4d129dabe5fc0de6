// Binary files are fuzzed as a good file plus patches: a mutated file as a whole would hardly ever
// get past HDF5's checksums, and a corpus of such files would be large.
//
// An input is a list of 4-byte patches, each applied in turn: where (one byte: 0-99 in the file's
// last 4 KiB, where tables lie, 100-199 in its first 4 KiB, 200-249 anywhere, 250-255 cut the file
// off there), place (two bytes, little-endian, scaled to that part), value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace ttrace::fuzz {

inline std::string patched(std::string file, const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kPart = 4096;
  for (; size >= 4 && !file.empty(); data += 4, size -= 4) {
    const std::size_t place = data[1] + 256U * data[2];
    const std::size_t part = std::min(kPart, file.size());
    if (data[0] < 100) {
      file[file.size() - part + place % part] = static_cast<char>(data[3]);
    } else if (data[0] < 200) {
      file[place % part] = static_cast<char>(data[3]);
    } else if (data[0] < 250) {
      file[place * file.size() / 65536] = static_cast<char>(data[3]);
    } else {
      file.resize(place * file.size() / 65536);
    }
  }
  return file;
}

}  // namespace ttrace::fuzz
