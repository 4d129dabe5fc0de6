// The output of a linear module, or the gradient of its input, as a sum over the addends of the
// ranks that hold its weight, computed again from the candidate's own records at sampled places.
#include "analysis/causes/common/addends.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace ttrace {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;  // [first, last)

// A product y = x W' or g = y W of the candidate's own records, with the ranks between which its
// inner dimension is cut.
struct Product {
  std::string name;  // of the module
  Values left;       // [rows, inner]
  Values weight;     // [outer, inner] forward, [inner, outer] backward
  bool backward = false;
  std::vector<Addend> addends;
  std::vector<std::vector<Range>> ranges;  // of the inner dimension, by addend

  // What an addend has at the whole tensor's row-major element `at`; rows are `width` long.
  [[nodiscard]] double addend_at(std::size_t addend, std::int64_t at, std::int64_t width) const {
    const std::int64_t inner = left.shape.back();
    const double* const x = left.data.data() + at / width * inner;
    const double* const w =
        backward ? weight.data.data() + at % width : weight.data.data() + at % width * inner;
    double sum = 0.0;
    for (const auto& [first, last] : ranges[addend]) {
      for (std::int64_t i = first; i < last; ++i) {
        sum += x[i] * w[backward ? i * width : i];
      }
    }
    return sum;
  }
};

// Cuts the inner dimension where the ranks' weights are cut; one addend where it is not.
void cut(const Match& weight, std::size_t dim, Product& product) {
  std::map<Range, std::vector<int>> holders;
  for (const Shard& shard : weight.candidate) {
    for (const Segment& segment : shard.record->placement.dims[dim].segments) {
      holders[{segment.logical, segment.logical + segment.extent}].push_back(shard.rank);
    }
  }
  // A rank adds up all of its ranges (gate and up rows of a gated fc1) itself.
  std::map<std::vector<int>, std::vector<Range>> ranges;
  for (const auto& [range, ranks] : holders) {
    ranges[ranks].push_back(range);
  }
  for (const auto& [ranks, held] : ranges) {
    product.ranges.push_back(held);
    product.addends.push_back({.ranks = ranks, .microbatch = kNoMicrobatch});
  }
}

// Nothing where that product is no tensor like `result`.
std::optional<Product> product_of(const Evidence& evidence,
                                  const std::string& module,
                                  const Match* left,
                                  const Values& result) {
  const bool backward = evidence.finding().id.kind == Kind::kGradOutput;
  const Match* const weight = evidence.find(weight_id(evidence.finding().id.step, module));
  auto w = evidence.candidate(weight);
  auto x = w ? evidence.candidate(left) : std::nullopt;
  const std::size_t inner = backward ? 0 : 1;
  if (!x || x->shape.empty() || w->shape.size() != 2 || w->shape[inner] != x->shape.back() ||
      w->shape[1 - inner] != result.shape.back() ||
      x->data.size() * static_cast<std::size_t>(result.shape.back()) !=
          result.data.size() * static_cast<std::size_t>(x->shape.back())) {
    return std::nullopt;
  }
  Product product{module, *std::move(x), *std::move(w), backward, {}, {}};
  cut(*weight, inner, product);
  return product;
}

// Elements of a rank's part, evenly spread over its rows and columns.
std::vector<std::size_t> sample(const std::vector<std::int64_t>& shape) {
  constexpr std::int64_t kRows = 48;
  constexpr std::int64_t kColumns = 64;
  const std::int64_t columns = shape.back();
  const std::int64_t rows = columns == 0 ? 0 : element_count(shape) / columns;
  std::vector<std::size_t> places;
  for (std::int64_t i = 0; i < std::min(rows, kRows); ++i) {
    for (std::int64_t j = 0; j < std::min(columns, kColumns); ++j) {
      places.push_back(static_cast<std::size_t>(i * rows / std::min(rows, kRows) * columns +
                                                j * columns / std::min(columns, kColumns)));
    }
  }
  return places;
}

// What a rank holds at sampled places, what the reference has there, and the addends; nothing where
// the reference is not their sum: then this product is not what was computed.
std::optional<RankFit> fit_part(const RankPart& part,
                                const Product& product,
                                const Values& numbers,
                                const std::optional<Values>& bias) {
  const std::vector<double> logical = values_at(numbers.data, *part.shard);
  std::vector<std::vector<double>> columns(product.addends.size() + (bias ? 1 : 0));
  std::vector<double> held;
  std::vector<double> right;
  for (const std::size_t place : sample(part.sides.shape())) {
    if (logical[place] == 0.0) {
      continue;  // padding
    }
    const auto at = static_cast<std::int64_t>(logical[place]) - 1;
    for (std::size_t i = 0; i < product.addends.size(); ++i) {
      columns[i].push_back(product.addend_at(i, at, numbers.shape.back()));
    }
    if (bias) {
      columns.back().push_back(bias->data[static_cast<std::size_t>(at % numbers.shape.back())]);
    }
    held.push_back(part.sides.candidate.data[place]);
    right.push_back(part.sides.reference.data[place]);
  }
  return is_sum_of(columns, right) ? fit_rank(part.rank(), columns, product.addends.size(), held)
                                   : std::nullopt;
}

Hypotheses read_product(const Evidence& evidence, const Sides& sides, const Product& product) {
  const auto bias = bias_of(evidence, sides.reference, WhichRun::kCandidate);
  Values numbers = sides.reference;  // every element's number, from 1
  std::iota(numbers.data.begin(), numbers.data.end(), 1.0);
  std::vector<RankFit> ranks;
  for (const RankPart& part : rank_parts(evidence.match().candidate, sides.reference)) {
    auto found = fit_part(part, product, numbers, bias);
    if (!found) {
      return {};
    }
    ranks.push_back(*std::move(found));
  }
  Hypotheses found = read_coefficients(evidence, product.addends, ranks);
  for (Hypothesis& each : found) {
    each.sentence += fmt::format(
        "; the addends of {} were computed again from the candidate's own input and weight, at "
        "sampled places",
        product.name);
  }
  return found;
}

// The products that may have made the finding: of the module's inputs, or, of the gradient of an
// output, of the modules that consume it, which are recorded after it.
std::vector<std::pair<std::string, const Match*>> factors_of(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  std::vector<std::pair<std::string, const Match*>> list;
  if (id.kind == Kind::kOutput) {
    for (const Match* input : inputs_of(evidence, id)) {
      list.emplace_back(id.path, input);
    }
  } else if (id.kind == Kind::kGradOutput) {
    for (const Match* consumer : outputs_after(evidence, id)) {
      list.emplace_back(consumer->id.path,
                        record_of(evidence, Kind::kGradOutput, consumer->id.path));
    }
  }
  return list;
}

}  // namespace

Hypotheses find_linear_addends(const Evidence& evidence, const Sides& sides) {
  if (sides.shape().size() < 2) {
    return {};
  }
  Hypotheses found;
  const auto factors = factors_of(evidence);
  for (const auto& [module, left] : factors) {
    if (const auto product = product_of(evidence, module, left, sides.reference)) {
      append(found, read_product(evidence, sides, *product));
    }
  }
  return chosen_of(factors.size(), std::move(found));
}

}  // namespace ttrace
