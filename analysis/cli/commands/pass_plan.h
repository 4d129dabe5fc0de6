// The passes of a check: which program runs under which variables, and where its files go.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/cli/commands/check_options.h"
#include "analysis/cli/run/passes.h"
#include "analysis/cli/run/run_directory.h"

#include <string>

namespace ttrace::cli {

// The folder of a reference and its noise passes, and the candidate whose choices of experts they
// reuse.
struct ReferenceRun {
  std::string folder;
  std::string candidate = {};  // followed; empty: nobody

  [[nodiscard]] std::string label(const std::string& pass) const {
    return candidate.empty() ? pass : "rerouted-" + pass;
  }
};

// The variables that every pass of a kind has.
[[nodiscard]] Variables variables(const CheckOptions& options, const std::string& pass);

// The folder in which the reference's program writes its passes and reads the candidate's. It has
// the reference's names, if the candidate's differ.
[[nodiscard]] std::string reference_side(const CheckOptions& options, const RunDirectory& run);
// The argument of --reference that reuses this run's reference.
[[nodiscard]] std::string stored_as(const CheckOptions& options, const RunDirectory& run);

// The candidate's first traced step, of which only counts are kept: what is wrong with the program
// itself shows before anything else runs.
[[nodiscard]] Pass dry_pass(const CheckOptions& options, const RunDirectory& run);
[[nodiscard]] Pass reference_pass(const CheckOptions& options,
                                  const RunDirectory& run,
                                  const ReferenceRun& to);
[[nodiscard]] Pass noise_pass(const CheckOptions& options,
                              const RunDirectory& run,
                              const ReferenceRun& to,
                              int seed);
// A noise pass that moves nothing.
[[nodiscard]] Pass self_check_pass(const CheckOptions& options,
                                   const RunDirectory& run,
                                   const ReferenceRun& to);
[[nodiscard]] Pass candidate_pass(const CheckOptions& options, const RunDirectory& run);
// The candidate's program by itself, from its own parameters, with all that its ranks exchange. Its
// trace goes to the folder `name` of the run.
[[nodiscard]] Pass lone_pass(const CheckOptions& options,
                             const RunDirectory& run,
                             const std::string& name);
// `name` and `folder` are those of one of the two forced passes, which computes in `precision`.
// `rerouted`: the reference that judges reused the candidate's choices of experts.
[[nodiscard]] Pass forced_pass(const CheckOptions& options,
                               const RunDirectory& run,
                               const std::string& precision,
                               const std::string& name,
                               const std::string& folder,
                               bool rerouted);
[[nodiscard]] Pass golden_pass_of(const CheckOptions& options,
                                  const RunDirectory& run,
                                  bool rerouted);

}  // namespace ttrace::cli
