// The results of norms before their weight and bias: y = (x - m) / sqrt(v + epsilon), per row.
//
// Sources: LayerNorm: Ba, Kiros and Hinton, "Layer normalization" (2016), equations 3 and 4;
// RMSNorm, where m is 0 and v the mean square: Zhang and Sennrich, "Root mean square layer
// normalization" (2019), equation 4.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ttrace {

struct Normalisation {
  double epsilon = 0.0;
  bool centred = false;  // LayerNorm; else RMSNorm

  // "LayerNorm with epsilon 1e-05"
  [[nodiscard]] std::string name() const;
  void apply(std::span<double> row) const;
};

// Both norms with every epsilon in use, the most usual first.
[[nodiscard]] std::vector<Normalisation> known_normalisations();

}  // namespace ttrace
