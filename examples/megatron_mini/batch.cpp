#include "batch.h"

#include "context_parallel.h"

#include <ATen/ATen.h>

#include <vector>

namespace megatron_mini {

namespace {

// One sample; all [s].
struct Row {
  at::Tensor tokens;
  at::Tensor labels;
  at::Tensor loss_mask;
  at::Tensor positions;
  at::Tensor documents;
};

// Cuts a sample into documents.
void pack(Row& row, const std::vector<std::int64_t>& cu_seqlens, std::int64_t begin_token) {
  for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const auto start = cu_seqlens[i];
    const auto length = cu_seqlens[i + 1] - start;
    row.tokens.narrow(0, start, 1).fill_(begin_token);
    row.labels.narrow(0, start + length - 1, 1).fill_(begin_token);  // of the next document
    row.loss_mask.narrow(0, start + length - 1, 1).fill_(false);
    row.positions.narrow(0, start, length).copy_(at::arange(length));
    row.documents.narrow(0, start, length).fill_(static_cast<std::int64_t>(i));
  }
}

// [s, b]
at::Tensor token_numbers(std::int64_t sequence, std::int64_t samples) {
  return at::arange(sequence * samples).view({sequence, samples});
}

Row load_row(const TextData& text, const DataConfig& data, const SampleKey& key) {
  const at::Tensor both = at::tensor(text.sample(key), at::kLong);
  const auto s = both.size(0) - 1;
  const auto prompt = data.masked == Masked::kPrompt ? text.prompt_length(key) : 0;
  Row row{.tokens = both.narrow(0, 0, s).clone(),
          .labels = both.narrow(0, 1, s).clone(),
          .loss_mask = at::arange(s).ge(prompt),
          .positions = at::arange(s),
          .documents = at::zeros({s}, at::kLong)};
  if (data.documents == Documents::kPacked) {
    pack(row, text.cu_seqlens(key), both[0].item<std::int64_t>());
  }
  return row;
}

}  // namespace

Batch load_batch(const TextData& text, const DataConfig& data, SampleKey key) {
  std::vector<Row> rows;
  for (key.sample = 0; key.sample < data.micro_batch_size; ++key.sample) {
    rows.push_back(load_row(text, data, key));
  }
  const auto stacked = [&](at::Tensor Row::*part, std::int64_t dimension) {
    std::vector<at::Tensor> parts;
    for (const auto& row : rows) {
      parts.push_back(row.*part);
    }
    return at::stack(parts, dimension);
  };
  const bool is_packed = data.documents == Documents::kPacked;
  return {.tokens = stacked(&Row::tokens, 0),
          .labels = stacked(&Row::labels, 0),
          .loss_mask = stacked(&Row::loss_mask, 0),
          .places = {.positions = stacked(&Row::positions, 1),
                     .documents = is_packed ? stacked(&Row::documents, 1) : at::Tensor(),
                     .rows = at::arange(rows.front().tokens.size(0)),
                     .samples = at::arange(data.micro_batch_size),
                     .all_samples = data.micro_batch_size,
                     .draw = microbatch_state(key),
                     .tokens = token_numbers(rows.front().tokens.size(0), data.micro_batch_size),
                     .counted = stacked(&Row::loss_mask, 1),
                     .microbatch = key.microbatch}};
}

Batch reordered(const Batch& batch, const at::Tensor& order) {
  const auto& documents = batch.places.documents;
  return {
      .tokens = batch.tokens.index_select(0, order),
      .labels = batch.labels.index_select(0, order),
      .loss_mask = batch.loss_mask.index_select(0, order),
      .places = {.positions = batch.places.positions.index_select(1, order),
                 .documents = documents.defined() ? documents.index_select(1, order) : documents,
                 .rows = batch.places.rows,
                 .samples = batch.places.samples.index_select(0, order),
                 .all_samples = batch.places.all_samples,
                 .draw = batch.places.draw,
                 .tokens = batch.places.tokens.index_select(1, order),
                 .counted = batch.places.counted.index_select(1, order),
                 .microbatch = batch.places.microbatch}};
}

Batch moved_to(c10::Device device, const Batch& batch) {
  Batch result = batch;
  TokenPlaces& places = result.places;  // of which `rows` and `samples` stay
  for (at::Tensor* const tensor : {&result.tokens,
                                   &result.labels,
                                   &result.loss_mask,
                                   &places.positions,
                                   &places.documents,
                                   &places.tokens,
                                   &places.counted}) {
    if (tensor->defined()) {
      *tensor = tensor->to(device);
    }
  }
  return result;
}

Batch part_of_rank(const Batch& batch, const Group& cp) {
  const at::Tensor rows = zigzag_rows(batch.tokens.size(1), cp.size, cp.rank);
  return {.tokens = batch.tokens.index_select(1, rows),
          .labels = batch.labels.index_select(1, rows),
          .loss_mask = batch.loss_mask.index_select(1, rows),
          .places = {.positions = batch.places.positions.index_select(0, rows),
                     .documents = batch.places.documents,
                     .rows = batch.places.rows.index_select(0, rows),
                     .samples = batch.places.samples,
                     .all_samples = batch.places.all_samples,
                     .draw = batch.places.draw,
                     .tokens = batch.places.tokens.index_select(0, rows),
                     .counted = batch.places.counted.index_select(0, rows),
                     .microbatch = batch.places.microbatch}};
}

}  // namespace megatron_mini
