#include "analysis/causes/common/extra_addend.h"

#include "analysis/causes/common/least_squares.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <numeric>

namespace ttrace {

std::optional<Hypothesis> read_extra_addends(std::span<const ExtraAddend> addends,
                                             std::span<const double> difference,
                                             double allowed) {
  std::vector<std::vector<double>> columns;
  for (const ExtraAddend& addend : addends) {
    columns.push_back(addend.values);
  }
  const auto found = fit(columns, difference);
  if (!found || found->residual > allowed) {
    return std::nullopt;
  }
  std::string sentence = "candidate = reference";
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const double a = found->coefficients[i];
    const double deviation = found->deviations[i];
    sentence += fmt::format("{} a x {}, a = {} +- {}{}",
                            i == 0 ? " +" : ", +",
                            addends[i].name,
                            factor_text(a),
                            short_number(deviation),
                            addends[i].meaning ? addends[i].meaning(a, deviation) : "");
  }
  const double squared =
      std::inner_product(difference.begin(), difference.end(), difference.begin(), 0.0);
  return Hypothesis{.signature = Signature::kWrongAddends,
                    .sentence = std::move(sentence),
                    .named = {.factors = found->coefficients},
                    .error = std::sqrt(squared),
                    .residual = found->residual,
                    .coefficients = static_cast<double>(addends.size())};
}

}  // namespace ttrace
