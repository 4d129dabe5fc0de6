// One number for many bytes: XXH3-64 over everything added, in order.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace ttrace::reference {

class Digest {
 public:
  Digest();
  void add(const void* bytes, std::size_t count);
  [[nodiscard]] std::string text() const;  // 16 hexadecimal digits

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace ttrace::reference
