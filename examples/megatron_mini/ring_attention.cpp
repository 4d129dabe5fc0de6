#include "ring_attention.h"

#include "context_parallel.h"
#include "dropout.h"
#include "wide_type.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>
#include <limits>
#include <utility>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [s, b, heads, d] -> [b, groups, heads / groups, s, d]
at::Tensor by_group(const at::Tensor& heads, std::int64_t groups) {
  const auto s = heads.size(0);
  const auto b = heads.size(1);
  return heads.reshape({s, b, groups, -1, heads.size(-1)}).permute({1, 2, 3, 0, 4});
}

// [b, g, m, s, d] -> [s, b, g * m, d]
at::Tensor by_row(const at::Tensor& grouped) {
  return grouped.permute({3, 0, 1, 2, 4}).flatten(2, 3);
}

// Where this rank's queries and the keys of rank `source` meet: queries from `first_query` on see
// keys before `keys`; all of them, or each those up to its own row.
struct Block {
  int source = 0;
  std::int64_t first_query = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  bool is_diagonal = false;

  // This rank's tensor [.., s, d] or [.., s, 1] -> its part in this block, a view.
  [[nodiscard]] at::Tensor of_queries(const at::Tensor& tensor) const {
    return tensor.narrow(-2, first_query, queries);
  }
  [[nodiscard]] at::Tensor of_keys(const at::Tensor& tensor) const {
    return tensor.narrow(-2, 0, keys);
  }
};

// In step t the keys of the t-th rank before this one are here. Of an earlier rank's two chunks the
// first lies before both of ours and the second behind both; a later rank's lie both between ours.
Block block_of(const Group& group, int step, std::int64_t rows) {
  const std::int64_t half = rows / 2;
  Block block{.source = (group.rank - step + group.size) % group.size};
  if (block.source < group.rank) {
    block.queries = rows;
    block.keys = half;
  } else if (block.source > group.rank) {
    block.first_query = half;
    block.queries = rows - half;
    block.keys = rows;
  } else {
    block.queries = rows;
    block.keys = rows;
    block.is_diagonal = true;
  }
  return block;
}

// True where a query must not see a key, broadcastable to [b, g, m, queries, keys]; undefined where
// all is seen.
at::Tensor hidden_keys(const Block& block, const Ring& ring, c10::Device device) {
  at::Tensor hidden;
  if (ring.steps->is_masked(block.is_diagonal)) {
    hidden =
        at::ones({block.queries, block.keys}, at::TensorOptions(device).dtype(at::kBool)).triu(1);
  }
  if (ring.documents.defined()) {
    const auto numbers = [&](int rank) {  // [b, s]
      return ring.documents
          .index_select(0, zigzag_rows(ring.documents.size(0), ring.group.size, rank, device))
          .t();
    };
    const at::Tensor of_query =
        numbers(ring.group.rank).narrow(1, block.first_query, block.queries);
    const at::Tensor of_key = numbers(block.source).narrow(1, 0, block.keys);
    const at::Tensor elsewhere =
        of_query.unsqueeze(2).ne(of_key.unsqueeze(1)).unsqueeze(1).unsqueeze(1);
    hidden = hidden.defined() ? hidden.logical_or(elsewhere) : elsewhere;
  }
  return hidden;
}

// [b, g, m, queries, keys], -inf where hidden; operands are wide.
at::Tensor scores_of(const at::Tensor& query,
                     const at::Tensor& key,
                     const Block& block,
                     const Ring& ring) {
  const at::Tensor scores = at::matmul(query, key.transpose(-2, -1)) * ring.scale;
  const at::Tensor hidden = hidden_keys(block, ring, query.device());
  return hidden.defined() ? scores.masked_fill(hidden, -std::numeric_limits<double>::infinity())
                          : scores;
}

// Dropout of one block's weights [b, g, m, queries, keys], or of their gradient, by the part of the
// mask that is for the keys of rank `source`.
at::Tensor drop_weights(const at::Tensor& weights,
                        const Block& block,
                        int source,
                        const Ring& ring) {
  if (!ring.kept.defined()) {
    return weights;
  }
  const int size = ring.group.size;
  const at::Tensor keys =
      zigzag_rows(ring.kept.size(3), size, source, weights.device()).narrow(0, 0, block.keys);
  const at::Tensor kept = ring.kept.narrow(2, block.first_query, block.queries)
                              .index_select(3, keys)
                              .view(weights.sizes());
  return drop(weights, kept, ring.dropped);
}

at::Tensor rounded(const at::Tensor& wide, at::ScalarType type) {
  return wide.to(type).to(wide.scalar_type());
}

// A row without a visible key has a denominator of 0; its weights shall be 0 and not 0 / 0.
at::Tensor finite(const at::Tensor& log_denominator) {
  return log_denominator.masked_fill(log_denominator.isinf(), 0.0);
}

// What queries got out of the keys so far.
struct Attended {
  at::Tensor context;          // [b, g, m, queries, d]
  at::Tensor log_denominator;  // [b, g, m, queries, 1], -inf where a query saw no key
};

Attended attend(const at::Tensor& scores,
                const at::Tensor& value,
                const Block& block,
                const Ring& ring,
                at::ScalarType type) {
  const at::Tensor log_denominator = scores.logsumexp(-1, /*keepdim=*/true);
  const at::Tensor weights =
      drop_weights((scores - finite(log_denominator)).exp(), block, block.source, ring);
  return {.context = at::matmul(rounded(weights, type), value), .log_denominator = log_denominator};
}

// Requires: every query of `total` has seen a key.
void merge(const Attended& total, const Attended& part, const Block& block, const Ring& ring) {
  at::Tensor context = block.of_queries(total.context);
  at::Tensor log_denominator = block.of_queries(total.log_denominator);
  const RingSteps::Merge merged = ring.steps->merge(log_denominator, part.log_denominator);
  context.mul_(merged.weight_of_total).add_(part.context * merged.weight_of_part);
  log_denominator.copy_(merged.log_denominator);
}

// This rank's side of a backward pass; all wide.
struct QuerySide {
  at::Tensor query;
  at::Tensor log_denominator;
  at::Tensor context_gradient;
  at::Tensor row_sum;         // of context gradient times context, [b, g, m, s, 1]
  at::Tensor query_gradient;  // collected here
};

// Adds what one block contributes. Keys, values and their gradients are wide: [2, b, g, 1, s, d].
void add_gradients(const QuerySide& own,
                   const at::Tensor& key_value,
                   at::Tensor& key_value_gradient,
                   const Block& block,
                   const Ring& ring,
                   at::ScalarType type) {
  const at::Tensor query = block.of_queries(own.query);
  const at::Tensor key = block.of_keys(key_value[0]);
  const at::Tensor value = block.of_keys(key_value[1]);
  const at::Tensor incoming = block.of_queries(own.context_gradient);
  const at::Tensor scores = scores_of(query, key, block, ring);
  const at::Tensor log_denominator =
      ring.steps->log_denominator(scores, block.of_queries(own.log_denominator));
  const int mask = ring.steps->mask_of(block.source, ring.group.size);
  const at::Tensor weights = (scores - log_denominator).exp();
  const at::Tensor weight_gradient =
      drop_weights(at::matmul(incoming, value.transpose(-2, -1)), block, mask, ring) -
      block.of_queries(own.row_sum);
  const at::Tensor score_gradient = rounded(weights * weight_gradient * ring.scale, type);

  // A key serves all query heads of its group: dimension 2 is summed.
  block.of_queries(own.query_gradient).add_(at::matmul(score_gradient, key));
  block.of_keys(key_value_gradient[0])
      .add_(at::matmul(score_gradient.transpose(-2, -1), query).sum(2, /*keepdim=*/true));
  block.of_keys(key_value_gradient[1])
      .add_(at::matmul(rounded(drop_weights(weights, block, mask, ring), type).transpose(-2, -1),
                       incoming)
                .sum(2, /*keepdim=*/true));
}

// What a node keeps of the steps until backward.
struct KeptSteps : torch::CustomClassHolder {
  explicit KeptSteps(std::shared_ptr<const RingSteps> kept) : steps(std::move(kept)) {}
  std::shared_ptr<const RingSteps> steps;
};

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            const Ring& ring) {
    const auto type = query.scalar_type();
    const auto wide = wide_type(query);
    const auto groups = key.size(2);
    const at::Tensor q = by_group(query, groups).to(wide);
    const at::Tensor own = at::stack({by_group(key, groups), by_group(value, groups)});

    at::Tensor passing = own;  // [2, b, g, 1, s, d]
    Attended total;
    for (int step = 0; step < ring.group.size; ++step) {
      const Block block = block_of(ring.group, step, query.size(0));
      const at::Tensor here = ring.steps->received(passing, block.is_diagonal).to(wide);
      const at::Tensor scores = scores_of(block.of_queries(q), block.of_keys(here[0]), block, ring);
      const Attended part = attend(scores, block.of_keys(here[1]), block, ring, type);
      if (block.is_diagonal) {
        total = part;  // the first step, in which every query sees itself
      } else {
        merge(total, part, block, ring);
      }
      if (step + 1 < ring.group.size) {
        passing = pass_on(passing, ring.group);
      }
    }
    context->save_for_backward({query, own, total.context, total.log_denominator});
    context->saved_data["group"] = ring.group.name;
    context->saved_data["scale"] = ring.scale;
    context->saved_data["documents"] = ring.documents;
    context->saved_data["kept"] = ring.kept;
    context->saved_data["dropped"] = ring.dropped;
    context->saved_data["steps"] =
        c10::IValue::make_capsule(c10::make_intrusive<KeptSteps>(ring.steps));
    return by_row(total.context).flatten(2).to(type);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto steps = context->saved_data["steps"].toCapsule();
    const Ring ring{.group = group_named(context->saved_data["group"].toStringRef()),
                    .scale = context->saved_data["scale"].toDouble(),
                    .documents = context->saved_data["documents"].toTensor(),
                    .kept = context->saved_data["kept"].toTensor(),
                    .dropped = context->saved_data["dropped"].toDouble(),
                    .steps = static_cast<const KeptSteps&>(*steps).steps};
    const at::Tensor& query = saved[0];
    const auto type = query.scalar_type();
    const auto wide = wide_type(query);
    const auto groups = saved[1].size(2);
    const at::Tensor incoming = by_group(gradients[0].reshape(query.sizes()), groups).to(wide);
    const QuerySide own{.query = by_group(query, groups).to(wide),
                        .log_denominator = saved[3],
                        .context_gradient = incoming,
                        .row_sum = (incoming * saved[2]).sum(-1, /*keepdim=*/true),
                        .query_gradient = at::zeros_like(incoming)};

    at::Tensor passing = saved[1];
    at::Tensor passing_gradient = at::zeros(passing.sizes(), passing.options().dtype(wide));
    for (int step = 0; step < ring.group.size; ++step) {
      const Block block = block_of(ring.group, step, query.size(0));
      const at::Tensor here = ring.steps->received(passing, block.is_diagonal).to(wide);
      add_gradients(own, here, passing_gradient, block, ring, type);
      if (step + 1 < ring.group.size) {
        passing = pass_on(passing, ring.group);
        passing_gradient = pass_on(passing_gradient, ring.group);
      }
    }
    passing_gradient = ring.steps->bring_home(passing_gradient, ring.group);
    return {by_row(own.query_gradient).to(type),
            by_row(passing_gradient[0]).to(type),
            by_row(passing_gradient[1]).to(type),
            {}};
  }
};

}  // namespace

at::Tensor RingSteps::received(const at::Tensor& key_value, bool /*own*/) const {
  return key_value;
}

RingSteps::Merge RingSteps::merge(const at::Tensor& total, const at::Tensor& part) const {
  const at::Tensor joint = at::logaddexp(total, part);
  return {.log_denominator = joint,
          .weight_of_total = (total - joint).exp(),
          .weight_of_part = (part - joint).exp()};
}

at::Tensor RingSteps::log_denominator(const at::Tensor& /*scores*/,
                                      const at::Tensor& merged) const {
  return merged;
}

int RingSteps::mask_of(int source, int /*ranks*/) const {
  return source;
}

at::Tensor RingSteps::bring_home(const at::Tensor& gradient, const Group& group) const {
  return pass_on(gradient, group);
}

at::Tensor ring_attention(const at::Tensor& query,
                          const at::Tensor& key,
                          const at::Tensor& value,
                          const Ring& ring) {
  return RingAttention::apply(query, key, value, ring);
}

}  // namespace megatron_mini
