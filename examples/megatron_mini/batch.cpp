#include "batch.h"

#include "context_parallel.h"

#include <ATen/ATen.h>

#include <vector>

namespace megatron_mini {

Batch load_batch(const TextData& text, const DataConfig& data, SampleKey key) {
  std::vector<std::int64_t> values;
  std::vector<std::int64_t> prompts;
  for (key.sample = 0; key.sample < data.micro_batch_size; ++key.sample) {
    const auto sample = text.sample(key);
    values.insert(values.end(), sample.begin(), sample.end());
    prompts.push_back(data.masked == Masked::kPrompt ? text.prompt_length(key) : 0);
  }
  const at::Tensor both = at::tensor(values, at::kLong).view({data.micro_batch_size, -1});
  const auto sequence = both.size(1) - 1;
  return {.tokens = both.narrow(1, 0, sequence).contiguous(),
          .labels = both.narrow(1, 1, sequence).contiguous(),
          .loss_mask = at::arange(sequence).ge(at::tensor(prompts, at::kLong).unsqueeze(1)),
          .places = {.positions = at::arange(sequence).unsqueeze(1).expand({-1, both.size(0)}),
                     .documents = at::Tensor()}};
}

Batch reordered(const Batch& batch, const at::Tensor& order) {
  return {.tokens = batch.tokens.index_select(0, order),
          .labels = batch.labels.index_select(0, order),
          .loss_mask = batch.loss_mask.index_select(0, order),
          .places = {.positions = batch.places.positions.index_select(1, order),
                     .documents = batch.places.documents}};
}

Batch part_of_rank(const Batch& batch, const Group& cp) {
  const at::Tensor rows = zigzag_rows(batch.tokens.size(1), cp.size, cp.rank);
  return {.tokens = batch.tokens.index_select(1, rows),
          .labels = batch.labels.index_select(1, rows),
          .loss_mask = batch.loss_mask.index_select(1, rows),
          .places = {.positions = batch.places.positions.index_select(0, rows),
                     .documents = batch.places.documents}};
}

}  // namespace megatron_mini
