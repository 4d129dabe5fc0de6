// One planted bug, and how it replaces parts of the program.
//
// README.md of this folder says how bugs are written.
#pragma once

#include "../parts.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace megatron_mini::faults {

// The magnitude of a bug: what --bug-size says, else the bug's own.
class Size {
 public:
  Size() = default;
  explicit Size(std::optional<double> asked) : asked_(asked) {}
  [[nodiscard]] double operator()(double own) const { return asked_.value_or(own); }

 private:
  std::optional<double> asked_;
};

struct Bug {
  std::string_view name;  // in bugs.yaml
  void (*plant)(Parts& parts, const Size& size);
};

// From now on `maker` makes a Wrong, from `more` and what the maker is called with.
template <class Wrong, class Part, class... Arguments, class... More>
void replace(Maker<Part, Arguments...>& maker, const More&... more) {
  maker = [more...](Arguments... arguments) -> std::shared_ptr<Part> {
    return make_part<Wrong>(more..., arguments...);
  };
}

// The same for parts whose path `is_meant`; the others are made as before.
template <class Wrong, class Part, class... Arguments, class... More>
void replace_where(const std::function<bool(const std::string&)>& is_meant,
                   Maker<Part, Arguments...>& maker,
                   const More&... more) {
  maker = [is_meant, before = maker, more...](Arguments... arguments) -> std::shared_ptr<Part> {
    const std::string& path = std::get<sizeof...(Arguments) - 1>(std::tie(arguments...));
    return is_meant(path) ? make_part<Wrong>(more..., arguments...) : before(arguments...);
  };
}

// The same for the part with this path.
template <class Wrong, class Part, class... Arguments, class... More>
void replace_at(const std::string& meant, Maker<Part, Arguments...>& maker, const More&... more) {
  replace_where<Wrong>([meant](const std::string& path) { return path == meant; }, maker, more...);
}

// Bug::plant of bugs without a magnitude: every part that a maker makes is Wrong, or the one at
// `path`. `maker`: &Parts::row.
template <auto maker, class Wrong>
void everywhere(Parts& parts, const Size& /*size*/) {
  replace<Wrong>(parts.*maker);
}
template <auto maker, class Wrong, const char* path>
void only_at(Parts& parts, const Size& /*size*/) {
  replace_at<Wrong>(path, parts.*maker);
}

// A part with a magnitude, which comes before what the part is made from.
template <class Part>
class Sized : public Part {
 public:
  template <class... Arguments>
  requires std::is_constructible_v<Part, const Arguments&...>
  explicit Sized(double size, const Arguments&... arguments) : Part(arguments...), size_(size) {}

 protected:
  [[nodiscard]] double size() const { return size_; }

 private:
  double size_;
};

}  // namespace megatron_mini::faults
