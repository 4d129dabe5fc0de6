#include "support/clopper_pearson.h"

#include <boost/math/distributions/binomial.hpp>

namespace ttrace::testing {

double clopper_pearson_upper(int events, int trials, double confidence) {
  if (events >= trials) {
    return 1.0;
  }
  return boost::math::binomial_distribution<double>::find_upper_bound_on_p(
      trials, events, (1.0 - confidence) / 2.0);
}

}  // namespace ttrace::testing
