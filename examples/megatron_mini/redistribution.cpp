#include "redistribution.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <vector>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kSamples = 1;  // dimension of the stream

struct Division {
  Group samples;
  bool by_rows = false;  // whether the ranks have other rows where they have all samples
};

void keep(AutogradContext* context, const Division& division) {
  context->saved_data["samples"] = division.samples.name;
  context->saved_data["by_rows"] = division.by_rows;
}

Division division_of(AutogradContext* context) {
  return {.samples = group_named(context->saved_data["samples"].toStringRef()),
          .by_rows = context->saved_data["by_rows"].toBool()};
}

// [k, ...], the r-th for rank r -> [k, ...], the r-th from rank r.
at::Tensor exchange(const at::Tensor& for_ranks, const Group& group) {
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(group.size), 1);
  return all_to_all(for_ranks, one_each, one_each, group);
}

at::Tensor own_samples(const at::Tensor& all, const Group& samples) {
  return all.chunk(samples.size, kSamples)[static_cast<std::size_t>(samples.rank)].clone(
      at::MemoryFormat::Contiguous);
}

at::Tensor divide(const at::Tensor& stream, const Division& division) {
  const Group& samples = division.samples;
  if (!division.by_rows) {
    return own_samples(stream, samples);
  }
  return exchange(at::stack(stream.chunk(samples.size, kSamples)), samples).flatten(0, 1);
}

at::Tensor join(const at::Tensor& stream, const Division& division) {
  const Group& samples = division.samples;
  if (!division.by_rows) {
    return all_gather(stream.transpose(0, kSamples), samples).transpose(0, kSamples).contiguous();
  }
  const at::Tensor rows_of_ranks =
      stream.unflatten(0, {samples.size, stream.size(0) / samples.size});
  return at::cat(exchange(rows_of_ranks, samples).unbind(), kSamples);
}

struct Divide : torch::autograd::Function<Divide> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& stream,
                            const Division& division) {
    keep(context, division);
    return divide(stream, division);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {join(gradients[0], division_of(context)), {}};
  }
};

struct Join : torch::autograd::Function<Join> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& stream,
                            const Division& division) {
    keep(context, division);
    return join(stream, division);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {divide(gradients[0], division_of(context)), {}};
  }
};

}  // namespace

at::Tensor divide_samples(const at::Tensor& stream,
                          const Parallel& parallel,
                          const Group& samples) {
  return Divide::apply(stream, Division{samples, parallel.sequence_parallel});
}

at::Tensor join_samples(const at::Tensor& stream, const Parallel& parallel, const Group& samples) {
  return Join::apply(stream, Division{samples, parallel.sequence_parallel});
}

TokenPlaces part_of_samples(const TokenPlaces& places, const Group& samples) {
  TokenPlaces result = places;
  for (at::Tensor* const tensor :
       {&result.positions, &result.documents, &result.tokens, &result.counted}) {
    if (tensor->defined()) {
      *tensor = own_samples(*tensor, samples);
    }
  }
  if (places.samples.defined()) {
    result.samples = places.samples.chunk(samples.size)[static_cast<std::size_t>(samples.rank)];
  }
  return result;
}

}  // namespace megatron_mini
