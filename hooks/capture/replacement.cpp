#include "hooks/capture/replacement.h"

#include <utility>

namespace ttrace {

Replacement::Replacement(std::unique_ptr<const GivenValues> values, Recorder& recorder)
    : values_(std::move(values)), recorder_(recorder) {}

std::optional<Replacement::Bytes> Replacement::of(const TensorId& id,
                                                  const TensorCopy& copy,
                                                  const Recorder::Options& options) {
  if (values_ == nullptr) {
    return std::nullopt;
  }
  const auto placement = recorder_.place(id, copy.shape, options);
  auto result = placement ? values_->value(id, *placement, copy) : std::nullopt;
  if (!result && is_floating(copy.type) && values_->should_have_all()) {
    count_missing(id);
  }
  return result;
}

std::optional<Replacement::Bytes> Replacement::of(const std::vector<RowPart>& parts,
                                                  Kind kind,
                                                  const TensorCopy& copy) {
  if (values_ == nullptr) {
    return std::nullopt;
  }
  TensorCopy result = copy;
  for (const RowPart& part : parts) {
    TensorId id = part.value;
    id.kind = kind;
    const auto bytes =
        of(id, select_rows(copy, part), {.microbatch = part.microbatch.get(), .rows = &part});
    if (bytes) {
      put_rows(*bytes, part, result);
    }
  }
  return std::move(result.bytes);
}

void Replacement::count_missing(const TensorId& id) {
  if (missing_++ == 0) {
    recorder_.note(
        "the candidate has no " + to_string(id) +
        ", and perhaps others are missing, too, so what follows from it is the reference's own");
  }
}

}  // namespace ttrace
