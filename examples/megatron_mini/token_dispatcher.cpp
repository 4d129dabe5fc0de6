#include "token_dispatcher.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows there, their gradients back.
struct Exchange : torch::autograd::Function<Exchange> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& rows,
                            const std::vector<std::int64_t>& sent,
                            const std::vector<std::int64_t>& received,
                            const Group& group) {
    context->saved_data["group"] = group.name;
    context->saved_data["sent"] = sent;
    context->saved_data["received"] = received;
    return all_to_all(rows, sent, received, group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {all_to_all(gradients[0],
                       context->saved_data["received"].toIntVector(),
                       context->saved_data["sent"].toIntVector(),
                       group_named(context->saved_data["group"].toStringRef())),
            {},
            {},
            {}};
  }
};

at::Tensor exchange(const at::Tensor& rows,
                    const std::vector<std::int64_t>& sent,
                    const std::vector<std::int64_t>& received,
                    const Group& group) {
  return group.size == 1 ? rows : Exchange::apply(rows, sent, received, group);
}

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.to(at::kCPU).contiguous();
  const auto* const first = whole.const_data_ptr<std::int64_t>();
  return {first, first + whole.numel()};
}

// Rows `order` of a tensor of `size` rows get these; the others are 0.
at::Tensor put_back(const at::Tensor& rows, const at::Tensor& order, std::int64_t size) {
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape.at(0) = size;
  return at::zeros(shape, rows.options()).index_copy(0, order, rows);
}

}  // namespace

TokenDispatch::TokenDispatch(const Blueprint& blueprint)
    : blueprint_(blueprint),
      parallel_(blueprint.parallel),
      distinct_(blueprint.parallel.has_distinct_tokens()),
      experts_(blueprint.model.experts) {
  parallel_.tp = parallel_.etp;
  parallel_.sequence_parallel = distinct_;
}

void TokenDispatch::plan(const Routing& routing, const TokenPlaces& places) {
  top_k_ = routing.experts.size(1);
  tokens_ = places.tokens.numel() * blueprint_.parallel.cp.size;
  const at::Tensor chosen = routing.experts.flatten();  // [n k]
  copies_ = std::get<1>(chosen.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  const Table table = exchange_counts(at::bincount(chosen, {}, experts_), places.microbatch);
  plan_gather(table);
  exchange_places(
      table, rows_of_rank(places.tokens, blueprint_.parallel).flatten(), places.microbatch);
}

TokenDispatch::Table TokenDispatch::exchange_counts(const at::Tensor& counts,
                                                    std::int64_t microbatch) {
  const std::int64_t ep = parallel_.ep.size;
  const std::int64_t local = experts_ / ep;
  sent_ = values(counts.view({ep, local}).sum(1));
  const at::Tensor mine =
      at::cat({counts, at::full({1}, microbatch, counts.options())}).unsqueeze(0);
  const at::Tensor all =
      all_gather(mine, parallel_.etp_ep).view({ep, parallel_.etp.size, experts_ + 1});
  Table table{.counts = all.narrow(2, parallel_.ep.rank * local, local),
              .microbatches = all.select(2, experts_)};
  received_ = values(table.counts.select(1, parallel_.etp.rank).sum(1));
  return table;
}

void TokenDispatch::plan_gather(const Table& table) {
  const std::int64_t local = table.counts.size(2);
  // Gathered rows come by rank of etp, then of ep, then by expert.
  at::Tensor counts = table.counts.transpose(0, 1);  // [etp, ep, local]
  if (!distinct_) {
    counts = counts.narrow(0, parallel_.etp.rank, 1);
  }
  const at::Tensor lengths = counts.sum({1, 2});  // [etp]
  longest_ = lengths.max().item<std::int64_t>();
  std::vector<at::Tensor> positions;
  for (std::int64_t rank = 0; rank < lengths.size(0); ++rank) {
    const std::int64_t first = rank * longest_;
    positions.push_back(
        at::arange(first, first + lengths[rank].item<std::int64_t>(), lengths.options()));
  }
  const at::Tensor gathered = at::cat(positions);  // [m]
  const at::Tensor expert = experts_of_rows(counts);
  order_ = gathered.index_select(
      0, std::get<1>(expert.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false)));
  rows_ = values(at::bincount(expert, {}, local));
}

at::Tensor TokenDispatch::experts_of_rows(const at::Tensor& counts) const {
  return at::arange(counts.size(2), counts.options())
      .expand({counts.size(0), counts.size(1), counts.size(2)})
      .flatten()
      .repeat_interleave(counts.flatten());
}

void TokenDispatch::exchange_places(const Table& table,
                                    const at::Tensor& tokens,
                                    std::int64_t microbatch) {
  const at::Tensor numbers = tokens.index_select(0, copies_.div(top_k_, "floor"));  // [n k]
  const at::Tensor places = at::stack({numbers, at::full_like(numbers, microbatch)}, 1);
  places_ = gather(exchange(places, sent_, received_, parallel_.ep)).index_select(0, order_);
  microbatches_ = values(table.microbatches);
  std::sort(microbatches_.begin(), microbatches_.end());
  microbatches_.erase(std::unique(microbatches_.begin(), microbatches_.end()), microbatches_.end());
}

at::Tensor TokenDispatch::enter_rows(const at::Tensor& rows) const {
  return enter_region(rows, parallel_);
}

at::Tensor TokenDispatch::enter_weights(const at::Tensor& weights) const {
  return enter_region(weights, parallel_);
}

at::Tensor TokenDispatch::gather(const at::Tensor& rows) const {
  if (!distinct_ || parallel_.etp.size == 1) {
    return enter_rows(rows);
  }
  std::vector<std::int64_t> padding = rows.sizes().vec();
  padding.at(0) = longest_ - rows.size(0);
  return enter_rows(at::cat({rows, at::zeros(padding, rows.options())}));
}

at::Tensor TokenDispatch::to_experts(const at::Tensor& tokens) const {
  const at::Tensor copies = tokens.index_select(0, copies_.div(top_k_, "floor"));  // [n k, h]
  return gather(exchange(copies, sent_, received_, parallel_.ep)).index_select(0, order_);
}

at::Tensor TokenDispatch::send_home(const at::Tensor& rows) const {
  const std::int64_t own = std::accumulate(received_.begin(), received_.end(), std::int64_t{0});
  at::Tensor mine;
  if (distinct_) {
    mine = leave_region(put_back(rows, order_, longest_ * parallel_.etp.size), parallel_)
               .narrow(0, 0, own);
  } else {
    mine = put_back(rows, order_, own);
  }
  return exchange(mine, received_, sent_, parallel_.ep);
}

at::Tensor TokenDispatch::combine(const at::Tensor& rows, const at::Tensor& weights) const {
  const bool shared =
      !distinct_;  // then rows are addends over etp, and so are gradients of weights
  const at::Tensor entered = shared ? enter_weights(weights) : weights;
  const at::Tensor by_copy = entered.flatten().index_select(0, copies_).unsqueeze(-1);  // [n k, 1]
  const at::Tensor weighted = weigh(send_home(rows), by_copy);                          // [n k, h]
  const at::Tensor sum = at::zeros({weights.size(0), rows.size(1)}, weighted.options())
                             .index_add(0, copies_.div(top_k_, "floor"), weighted);
  return shared ? leave_region(sum, parallel_) : sum;
}

at::Tensor TokenDispatch::weigh(const at::Tensor& outputs, const at::Tensor& weights) const {
  return outputs * weights;
}

ttrace::Rows TokenDispatch::places_of_rows(std::size_t expert) const {
  const auto first = std::accumulate(
      rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(expert), std::int64_t{0});
  const at::Tensor part = places_.narrow(0, first, rows_[expert]);
  return {.index = values(part.select(1, 0)),
          .size = tokens_,
          .microbatch = values(part.select(1, 1)),
          .microbatches = microbatches_};
}

}  // namespace megatron_mini
