#include "hooks/replace/followed_choices.h"

#include "hooks/base/tensor_access.h"
#include "hooks/replace/overlay.h"
#include "trace/file/manifest.h"
#include "trace/merge/merge.h"
#include "trace/samples/align_samples.h"

#include <ttrace/error.h>

#include <ATen/ops/empty.h>

namespace ttrace {
namespace {

// What a recomputed forward must repeat.
TensorId first_forward(TensorId id) {
  id.recompute = false;
  return id;
}

}  // namespace

FollowedChoices::FollowedChoices(const std::string& directory, const std::string& reference)
    : trace_(open_aligned(reference, directory)),
      routing_(read_routing(trace_)),
      draws_(trace_),
      digest_(digest_of_choices(trace_)) {}

std::shared_ptr<const FollowedChoices> FollowedChoices::of(const Environment& environment) {
  if (environment.pass != Pass::kNoise) {
    return environment.candidate.empty() ? nullptr
                                         : std::make_shared<const FollowedChoices>(
                                               environment.candidate, environment.reference);
  }
  const bool own = environment.candidate.empty();
  auto result = std::make_shared<const FollowedChoices>(
      own ? environment.reference : environment.candidate, environment.reference);
  const std::string followed = read_manifest(environment.reference).forced_routing;
  TTRACE_CHECK(followed == (own ? "" : result->digest_),
               UsageError,
               "the reference ",
               environment.reference,
               followed.empty() ? " chose its own experts and random numbers, but "
                                : " used the choices with digest " + followed + ", but ",
               own ? "TTRACE_CANDIDATE is not set"
                   : "TTRACE_CANDIDATE=" + environment.candidate + " has digest " + result->digest_,
               "; give a noise pass the TTRACE_CANDIDATE of its reference");
  // There is nothing to reuse if the model makes no choices or TTRACE_FILTER left them out.
  return own && result->digest_.empty() ? nullptr : std::move(result);
}

at::Tensor FollowedChoices::experts(const TensorId& id,
                                    const Placement& placement,
                                    const at::Tensor& own) const {
  const TensorId first = first_forward(id);
  const auto found = routing_.find(first);
  TTRACE_CHECK(found != routing_.end(),
               UsageError,
               "the choices of experts should come from ",
               trace_.directory(),
               ", which has no ",
               to_string(first),
               "; use the same paths, micro-batches and TTRACE_FILTER there");
  const std::vector<std::int64_t> shape = placement.logical_shape();
  TTRACE_CHECK(found->second.shape == shape,
               UsageError,
               to_string(first),
               " is ",
               shape_text(shape),
               " here, but ",
               shape_text(found->second.shape),
               " in ",
               trace_.directory(),
               ", from which the choices of experts should come; correct its annotation");
  at::Tensor local = at::empty(own.sizes(), own.options().device(at::kCPU));
  extract(placement, ElementType::kI64, found->second.experts.data(), local.mutable_data_ptr());
  return local.to(own.device());
}

std::optional<std::vector<std::byte>> FollowedChoices::draw(const TensorId& id,
                                                            const Placement& placement,
                                                            const TensorCopy& own) const {
  const std::optional<MergeResult> drawn = draws_.of(first_forward(id));
  if (!drawn || drawn->shape != placement.logical_shape()) {
    return std::nullopt;
  }
  return overlay(own, placement, *drawn);
}

}  // namespace ttrace
