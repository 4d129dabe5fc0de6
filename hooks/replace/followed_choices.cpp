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

// Choices have the places of their samples. Where these are not known, as of data that the other
// run has yet to follow, they stay where they are.
Trace open_followed(const std::string& directory, const Trace& reference) {
  Trace trace = Trace::open(directory);
  const bool is_known = reference.directory() == trace.directory() ||
                        align_samples(reference, trace).unaligned.empty();
  return is_known ? std::move(trace) : Trace::open(directory);
}

// Of a noise pass. `digest`: of the candidate's choices; empty where none is given.
void require_same_choices(const Environment& environment, const std::string& digest) {
  const std::string followed = read_manifest(environment.reference).forced_routing;
  const bool own = environment.candidate.empty();
  TTRACE_CHECK(followed == digest,
               UsageError,
               "the reference ",
               environment.reference,
               followed.empty() ? " chose its own experts and random numbers, but "
                                : " used the choices with digest " + followed + ", but ",
               own ? "TTRACE_CANDIDATE is not set"
                   : "TTRACE_CANDIDATE=" + environment.candidate + " has digest " + digest,
               "; give a noise pass the TTRACE_CANDIDATE of its reference");
}

}  // namespace

FollowedChoices::FollowedChoices(const std::string& directory,
                                 const std::string& reference,
                                 bool repeats)
    : reference_(reference.empty() ? Trace() : Trace::open(reference)),
      trace_(open_followed(directory, reference_)),
      routing_(read_routing(trace_)),
      draws_(trace_),
      digest_(digest_of_choices(Trace::open(directory))),
      of_reference_(reference_) {
  if (repeats) {
    data_ = &of_reference_;
  } else if (data_of_its_own(of_reference_, draws_)) {
    data_ = &draws_;
  }
}

std::shared_ptr<const FollowedChoices> FollowedChoices::of(const Environment& environment) {
  const std::string& reference = environment.reference;
  const bool repeats = environment.pass == Pass::kNoise;
  const bool own = environment.candidate.empty();
  if (own && !repeats) {
    return nullptr;
  }
  auto result = std::make_shared<const FollowedChoices>(
      own ? reference : environment.candidate, reference, repeats);
  if (repeats) {
    require_same_choices(environment, own ? "" : result->digest_);
  }
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
  const Draws* const draws = is_draw_of_data(id) ? data_ : &draws_;
  const auto drawn = draws == nullptr ? std::nullopt : draws->of(first_forward(id));
  if (!drawn || drawn->shape != placement.logical_shape()) {
    return std::nullopt;
  }
  return overlay(own, placement, *drawn);
}

}  // namespace ttrace
