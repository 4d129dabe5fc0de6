// What emulated_linear.py computes with numpy and gfloat, for tests of FP8 linears.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttrace::testing {

struct EmulatedCase {
  std::string what;    // "quantised", "delayed" or "linear"
  std::string recipe;  // "current", "delayed", "blockwise" or "mxfp8"
  std::string format;  // "e4m3", "e5m2", or "-" where there are several
  bool is_weight = false;
  std::map<std::string, at::Tensor> tensors;  // f64; most of them hold f32 values

  [[nodiscard]] const at::Tensor& operator[](const std::string& name) const {
    return tensors.at(name);
  }
  [[nodiscard]] std::string name() const {
    return what + " " + recipe + " " + format + (is_weight ? " weight" : "");
  }
};

inline at::Tensor read_tensor(std::istream& in) {
  std::size_t dims = 0;
  in >> dims;
  std::vector<std::int64_t> sizes(dims);
  for (std::int64_t& size : sizes) {
    in >> size;
  }
  at::Tensor result = at::empty(sizes, at::kDouble);
  auto* values = result.mutable_data_ptr<double>();
  std::string word;  // hexadecimal, which operator>> of a number does not read
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    in >> word;
    values[i] = std::strtod(word.c_str(), nullptr);
  }
  return result;
}

// All cases of the file that are about `what`. Throws std::runtime_error where there are none.
inline std::vector<EmulatedCase> emulated_cases(const std::string& file, const std::string& what) {
  std::ifstream in(file);
  std::vector<EmulatedCase> cases;
  for (std::string word; in >> word;) {
    if (word == "case") {
      EmulatedCase& added = cases.emplace_back();
      in >> added.what >> added.recipe >> added.format >> added.is_weight;
    } else {
      std::string name;
      in >> name;
      cases.back().tensors.emplace(name, read_tensor(in));
    }
  }
  std::erase_if(cases, [&](const EmulatedCase& one) { return one.what != what; });
  if (cases.empty()) {
    throw std::runtime_error(file + " has no case of " + what);
  }
  return cases;
}

// Equal in every bit but those of NaN. `what` begins a failure's text.
inline std::string difference(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wide = found.to(at::kDouble).reshape(-1);
  const at::Tensor other = expected.reshape(-1);
  if (wide.numel() != other.numel()) {
    return std::to_string(wide.numel()) + " elements, expected " + std::to_string(other.numel());
  }
  const at::Tensor same = wide.eq(other).logical_or(wide.isnan().logical_and(other.isnan()));
  const at::Tensor places = same.logical_not().nonzero();
  if (places.size(0) == 0) {
    return "";
  }
  const auto first = places[0][0].item<std::int64_t>();
  return std::to_string(places.size(0)) + " elements differ, the first is number " +
         std::to_string(first) + ": " + std::to_string(wide[first].item<double>()) + ", expected " +
         std::to_string(other[first].item<double>());
}

}  // namespace ttrace::testing
