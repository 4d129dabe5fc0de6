#include "analysis/causes/common/addends.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace ttrace {
namespace {

constexpr std::int64_t kRows = 48;
constexpr std::int64_t kColumns = 64;

using Range = std::pair<std::int64_t, std::int64_t>;  // [first, last)

// A product y = x W' or g = y W of the candidate's own records, with the ranks between which its
// inner dimension is cut.
struct Product {
  Values left;    // [rows, inner]
  Values weight;  // [outer, inner] forward, [inner, outer] backward
  bool backward = false;
  std::vector<Addend> addends;
  std::vector<std::vector<Range>> ranges;  // of the inner dimension, by addend
  std::string name;                        // of the module

  [[nodiscard]] std::int64_t inner() const { return left.shape.back(); }
  [[nodiscard]] double weight_at(std::int64_t outer, std::int64_t at) const {
    const std::int64_t columns = weight.shape[1];
    return weight
        .data[static_cast<std::size_t>(backward ? at * columns + outer : outer * columns + at)];
  }
};

std::int64_t rows_of(const Values& values) {
  return values.shape.empty() || values.shape.back() == 0
             ? 0
             : std::ssize(values.data) / values.shape.back();
}

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

std::optional<Product> product_of(const Evidence& evidence,
                                  const std::string& module,
                                  const Match& left,
                                  bool backward) {
  const Match* weight = evidence.find(weight_id(evidence.finding().id.step, module));
  if (weight == nullptr || weight->candidate.empty()) {
    return std::nullopt;
  }
  auto x = evidence.candidate(left);
  auto w = evidence.candidate(*weight);
  const std::size_t dim = backward ? 0 : 1;
  if (!x || !w || x->shape.empty() || w->shape.size() != 2 || w->shape[dim] != x->shape.back()) {
    return std::nullopt;
  }
  Product product{*std::move(x), *std::move(w), backward, {}, {}, module};
  cut(*weight, dim, product);
  return product;
}

double addend_at(const Product& product, std::size_t addend, std::int64_t row, std::int64_t outer) {
  const auto start = static_cast<std::size_t>(row * product.inner());
  double sum = 0.0;
  for (const auto& [first, last] : product.ranges[addend]) {
    for (std::int64_t at = first; at < last; ++at) {
      sum += product.left.data[start + static_cast<std::size_t>(at)] * product.weight_at(outer, at);
    }
  }
  return sum;
}

// Local index -> logical index of one dimension; -1 for padding.
std::vector<std::int64_t> logical_indices(const DimPlacement& dim) {
  std::vector<std::int64_t> map(static_cast<std::size_t>(dim.local_size), -1);
  for (const Segment& segment : dim.segments) {
    for (std::int64_t i = 0; i < segment.extent; ++i) {
      map[static_cast<std::size_t>(segment.local + i)] = segment.logical + i;
    }
  }
  return map;
}

// Row-major position among the leading dimensions of the logical tensor; -1 for padding.
std::int64_t logical_row(const std::vector<DimPlacement>& dims,
                         const std::vector<std::vector<std::int64_t>>& maps,
                         std::int64_t local) {
  std::int64_t logical = 0;
  std::int64_t unit = 1;
  for (std::size_t dim = dims.size() - 1; dim-- > 0;) {
    const std::int64_t at = maps[dim][static_cast<std::size_t>(local % dims[dim].local_size)];
    if (at < 0) {
      return -1;
    }
    local /= dims[dim].local_size;
    logical += at * unit;
    unit *= dims[dim].logical_size;
  }
  return logical;
}

struct Place {
  std::int64_t local = 0;  // element of the local tensor
  std::int64_t row = 0;    // logical
  std::int64_t column = 0;
};

// Evenly spread over the rows and columns that a rank holds.
std::vector<Place> sample(const Placement& placement) {
  const auto& dims = placement.dims;
  std::vector<std::vector<std::int64_t>> maps;
  std::int64_t rows = 1;
  for (const DimPlacement& dim : dims) {
    maps.push_back(logical_indices(dim));
    rows *= dim.local_size;
  }
  const std::int64_t columns = dims.back().local_size;
  rows = columns == 0 ? 0 : rows / columns;
  std::vector<Place> places;
  for (std::int64_t i = 0; i < std::min(rows, kRows); ++i) {
    const std::int64_t local_row = i * rows / std::min(rows, kRows);
    const std::int64_t row = logical_row(dims, maps, local_row);
    for (std::int64_t j = 0; row >= 0 && j < std::min(columns, kColumns); ++j) {
      const std::int64_t local_column = j * columns / std::min(columns, kColumns);
      const std::int64_t column = maps.back()[static_cast<std::size_t>(local_column)];
      if (column >= 0) {
        places.push_back({local_row * columns + local_column, row, column});
      }
    }
  }
  return places;
}

std::vector<std::vector<double>> columns_at(const Product& product,
                                            const std::vector<Place>& places,
                                            const std::optional<Values>& bias) {
  std::vector<std::vector<double>> columns(product.addends.size());
  for (const Place& place : places) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i].push_back(addend_at(product, i, place.row, place.column));
    }
  }
  if (bias) {
    columns.emplace_back();
    for (const Place& place : places) {
      columns.back().push_back(bias->data[static_cast<std::size_t>(place.column)]);
    }
  }
  return columns;
}

// Whether the reference is the sum with all coefficients 1: else this product is not what was
// computed there.
bool makes_reference(const std::vector<std::vector<double>>& columns,
                     const std::vector<Place>& places,
                     const Values& reference) {
  const std::int64_t width = reference.shape.back();
  double rest = 0.0;
  double norm = 0.0;
  for (std::size_t at = 0; at < places.size(); ++at) {
    const double expected =
        reference.data[static_cast<std::size_t>(places[at].row * width + places[at].column)];
    double sum = 0.0;
    for (const auto& column : columns) {
      sum += column[at];
    }
    rest += (sum - expected) * (sum - expected);
    norm += expected * expected;
  }
  return reproduces(std::sqrt(rest), std::sqrt(norm));
}

std::optional<Hypothesis> read_product(const Evidence& evidence,
                                       const Product& product,
                                       const Values& reference,
                                       const std::optional<Values>& bias) {
  std::vector<RankFit> ranks;
  for (const Shard& shard : evidence.match().candidate) {
    const Placement& placement = shard.record->placement;
    const std::vector<Place> places = sample(placement);
    const auto columns = columns_at(product, places, bias);
    if (placement.partial_count != 1 || !makes_reference(columns, places, reference)) {
      return std::nullopt;
    }
    const Values held = local_values(shard);
    std::vector<double> target;
    double squared = 0.0;
    for (const Place& place : places) {
      target.push_back(held.data[static_cast<std::size_t>(place.local)]);
      squared += target.back() * target.back();
    }
    auto found = fit(columns, target);
    if (!found || !reproduces(found->residual, std::sqrt(squared))) {
      return std::nullopt;
    }
    ranks.push_back({shard.rank, *std::move(found), error_of_sum(columns, target)});
  }
  auto found = read_coefficients(evidence, product.addends, ranks);
  if (found) {
    found->sentence += fmt::format(
        "; these are the coefficients of {}, computed again from the candidate's own input and "
        "weight at sampled places",
        product.name);
  }
  return found;
}

std::optional<Values> bias_of(const Evidence& evidence, const Values& output) {
  const TensorId& id = evidence.finding().id;
  const Match* match = evidence.find(bias_id(id.step, id.path));
  auto bias = match == nullptr ? std::nullopt : evidence.candidate(*match);
  return bias && std::ssize(bias->data) == output.shape.back() ? std::move(bias) : std::nullopt;
}

std::optional<Hypothesis> find_in_forward(const Evidence& evidence, const Values& reference) {
  const auto bias = bias_of(evidence, reference);
  for (const Match* input : inputs_of(evidence, evidence.finding().id)) {
    const auto product = product_of(evidence, evidence.finding().id.path, *input, false);
    if (product && rows_of(product->left) == rows_of(reference) &&
        product->weight.shape[0] == reference.shape.back()) {
      if (auto found = read_product(evidence, *product, reference, bias)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

// The gradient of an output comes from the modules that consume it: those recorded after it.
std::optional<Hypothesis> find_in_backward(const Evidence& evidence, const Values& reference) {
  TensorId id = evidence.finding().id;
  id.kind = Kind::kOutput;
  for (const Match* consumer : outputs_after(evidence, id)) {
    const Match* left = record_of(evidence, Kind::kGradOutput, consumer->id.path);
    const auto product =
        left == nullptr ? std::nullopt : product_of(evidence, consumer->id.path, *left, true);
    if (product && rows_of(product->left) == rows_of(reference) &&
        product->weight.shape[1] == reference.shape.back()) {
      if (auto found = read_product(evidence, *product, reference, std::nullopt)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Hypothesis> find_linear_addends(const Evidence& evidence) {
  const auto reference = evidence.reference(evidence.match());
  if (!reference || reference->shape.size() < 2 || evidence.sides() == nullptr) {
    return std::nullopt;
  }
  switch (evidence.finding().id.kind) {
    case Kind::kOutput:
      return find_in_forward(evidence, *reference);
    case Kind::kGradOutput:
      return find_in_backward(evidence, *reference);
    default:
      return std::nullopt;
  }
}

}  // namespace ttrace
