#include "analysis/checks/normalisation.h"

#include "analysis/findings/wording.h"

#include <cmath>

namespace ttrace {

std::string Normalisation::name() const {
  return (centred ? "LayerNorm with epsilon " : "RMSNorm with epsilon ") + short_number(epsilon);
}

void Normalisation::apply(std::span<double> row) const {
  const auto n = static_cast<double>(row.size());
  double mean = 0.0;
  double squared = 0.0;
  for (const double value : row) {
    mean += centred ? value / n : 0.0;
  }
  for (const double value : row) {
    squared += (value - mean) * (value - mean) / n;
  }
  const double factor = 1.0 / std::sqrt(squared + epsilon);
  for (double& value : row) {
    value = (value - mean) * factor;
  }
}

std::vector<Normalisation> known_normalisations() {
  std::vector<Normalisation> result;
  for (const double epsilon : {1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 0.0}) {
    result.push_back({epsilon, true});
    result.push_back({epsilon, false});
  }
  return result;
}

}  // namespace ttrace
