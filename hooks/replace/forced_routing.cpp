#include "hooks/replace/forced_routing.h"

#include "hooks/base/tensor_access.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <ATen/ops/empty.h>

#include <utility>

namespace ttrace {

ForcedRouting::ForcedRouting(const std::string& directory)
    : directory_(directory), routing_(read_routing(Trace::open(directory))) {
  digest_ = digest_of(routing_);
}

std::optional<ForcedRouting> ForcedRouting::of(const Environment& environment) {
  if (environment.pass != Pass::kNoise) {
    return environment.candidate.empty() ? std::nullopt
                                         : std::optional(ForcedRouting(environment.candidate));
  }
  const bool own = environment.candidate.empty();
  ForcedRouting result(own ? environment.reference : environment.candidate);
  const std::string followed = read_manifest(environment.reference).forced_routing;
  TTRACE_CHECK(followed == (own ? "" : result.digest_),
               UsageError,
               "the reference ",
               environment.reference,
               followed.empty() ? " chose its own experts, but "
                                : " used the choices with digest " + followed + ", but ",
               own ? "TTRACE_CANDIDATE is not set"
                   : "TTRACE_CANDIDATE=" + environment.candidate + " has digest " + result.digest_,
               "; give a noise pass the TTRACE_CANDIDATE of its reference");
  // There is nothing to reuse if the model has no experts or TTRACE_FILTER left them out.
  return own && result.routing_.empty() ? std::nullopt : std::optional(std::move(result));
}

at::Tensor ForcedRouting::choices(const TensorId& id,
                                  const Placement& placement,
                                  const at::Tensor& own) const {
  TensorId first = id;
  first.recompute = false;
  const auto found = routing_.find(first);
  TTRACE_CHECK(found != routing_.end(),
               UsageError,
               "the choices of experts should come from ",
               directory_,
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
               directory_,
               ", from which the choices of experts should come; correct its annotation");
  at::Tensor local = at::empty(own.sizes(), own.options().device(at::kCPU));
  extract(placement, ElementType::kI64, found->second.experts.data(), local.mutable_data_ptr());
  return local.to(own.device());
}

}  // namespace ttrace
