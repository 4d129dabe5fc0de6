// The part of Tracer that replaces start values by those of the reference.
#include "hooks/base/tensor_access.h"
#include "hooks/base/tensor_copy.h"
#include "hooks/session/consistent_start.h"
#include "hooks/session/tracer.h"
#include "trace/file/manifest.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

Digest digest_of_values(const at::Tensor& tensor) {
  wait_for_device_of(tensor);
  const TensorCopy copy = copy_tensor(tensor);
  return digest_of(copy.bytes.data(), static_cast<std::int64_t>(copy.bytes.size()));
}

// Of the first of these ranks, with what the others began with.
Snapshot snapshot_of(std::vector<TensorCopy> ranks) {
  Snapshot first(std::move(ranks.front()));
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    first.others.emplace_back(std::move(ranks[i]));
  }
  return first;
}

}  // namespace

std::vector<std::string> Tracer::load_parameters() {
  TTRACE_CHECK(
      capture_ != nullptr,
      UsageError,
      "Session::load_parameters was called before Session::attach; attach the model first");
  TTRACE_CHECK(begun_.empty(),
               UsageError,
               "Session::load_parameters was called after iteration ",
               *begun_.begin(),
               " was traced; call it before the optimizer is built");
  const std::vector<Parameter>& parameters = capture_->parameters().all();
  if (environment_.pass == Pass::kReference) {
    for (const Parameter& parameter : parameters) {
      start_ += {1, static_cast<std::uint64_t>(parameter.tensor.nbytes())};
    }
    if (!environment_.count_only) {
      store_start(environment_.directory, parameters, layout_, annotations_);
    }
    return {};
  }
  // A golden pass needs the reference's, rounded ones, whatever candidates start from.
  if (environment_.own_start && environment_.pass != Pass::kGolden) {
    return {};
  }
  TTRACE_CHECK(!environment_.reference.empty(),
               UsageError,
               "the start parameters come from the reference's trace, but TTRACE_REFERENCE is not "
               "set; set it, or set TTRACE_START=own to keep the program's parameters");
  std::vector<ReplacedStart> replaced =
      load_start(environment_.reference, parameters, ranks(), annotations_);
  log(LogLevel::kInfo,
      std::to_string(replaced.size()) + " of " + std::to_string(parameters.size()) +
          " parameters differed from the reference's and were replaced");
  std::vector<std::string> differed;
  for (const ReplacedStart& one : replaced) {
    differed.push_back(one.path);
  }
  if (environment_.pass == Pass::kCandidate && !replaced.empty()) {
    const std::string& first = differed.front();
    replaced_.emplace(first, digest_of_values(capture_->parameters().named(first)->tensor));
    not_seen({NotSeenKind::kStart,
              "the start values of " + std::to_string(replaced.size()) + " of " +
                  std::to_string(parameters.size()) +
                  " parameters differed from the reference's and were replaced by them; --start "
                  "own compares them"});
    std::map<std::string, Snapshot> own;
    for (ReplacedStart& one : replaced) {
      if (!one.own.empty()) {
        own.emplace(one.path, snapshot_of(std::move(one.own)));
      }
    }
    capture_->keep_start(std::move(own));
  }
  return differed;
}

void Tracer::check_resumed() const {
  if (!replaced_) {
    return;
  }
  const std::optional<std::int64_t> of_reference =
      read_manifest(environment_.reference).first_iteration;
  const Parameter* const parameter = capture_->parameters().named(replaced_->first);
  if (!of_reference || *of_reference == *first_iteration_ || parameter == nullptr) {
    return;
  }
  // The program may have loaded its own values since.
  TTRACE_CHECK(digest_of_values(parameter->tensor) != replaced_->second,
               UsageError,
               "this program begins with iteration ",
               *first_iteration_,
               ", but the reference began with iteration ",
               *of_reference,
               ", and the reference's start values have taken the place of those that this program "
               "begins with, in ",
               replaced_->first,
               " and others; compare a resumed program with --start own");
}

}  // namespace ttrace
