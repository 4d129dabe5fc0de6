// The parts of a live Session: attached model, writer thread, operator callback, capture.
//
// Thread-safety: training thread only.
#pragma once

#include "hooks/base/environment.h"
#include "hooks/base/failure.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/observer.h"
#include "hooks/write/writer_thread.h"
#include "trace/base/durable_file.h"
#include "trace/base/not_seen.h"
#include "trace/kernels/digest.h"

#include <ttrace/annotations.h>
#include <ttrace/layout.h>
#include <ttrace/named_tensor.h>
#include <ttrace/run_description.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

class Tracer {
 public:
  explicit Tracer(Environment environment);
  ~Tracer();
  Tracer(const Tracer&) = delete;  // owns a thread and registrations
  Tracer& operator=(const Tracer&) = delete;

  // The precision that this pass asks for, else `own`. The manifest keeps the answer, unless `own`
  // is empty: then the caller asks about the pass alone.
  std::string answer_precision(const std::string& own);

  void describe(RunDescription description);
  void simulate(std::vector<Layout> others);
  void attach(std::vector<NamedTensor> parameters,
              const std::vector<std::pair<std::string, const torch::nn::Module*>>& modules,
              const Layout& layout,
              const Annotations& annotations);
  std::vector<std::string> load_parameters();

  // Counts for the step that is open, or else for all later ones.
  void not_seen(NotSeen fact);

  // Whether this iteration is traced; if so, the step has begun. `gathered_later`: see StepOptions.
  bool begin_step(std::int64_t iteration, const std::vector<std::string>& gathered_later);
  void fail_step(const std::string& reason) noexcept;
  void end_step() noexcept;

  [[nodiscard]] Capture& capture() const { return *capture_; }
  // Throws a kept error under TTRACE_ON_ERROR=raise.
  void raise_if_asked() const { failure_->raise_if_asked(); }

 private:
  // The values that replace the program's own in this pass; null: none do.
  [[nodiscard]] std::unique_ptr<const GivenValues> given_values() const;
  // Whether this pass moves what is cast into FP8 by scales that the candidate did not record.
  // `given`: what replaces the program's own; a forced pass has it.
  [[nodiscard]] bool moves_codes(const GivenValues* given) const;
  // This rank's layout, and those of the ranks that the process simulates.
  [[nodiscard]] std::vector<Layout> ranks() const;
  // Throws UsageError in a pass that cannot follow simulated ranks.
  void check_simulation() const;
  void check_precision(const std::vector<NamedTensor>& parameters) const;
  void check_placements() const;
  // Where this rank writes a manifest. `trains`: the first traced step begins, and what the machine
  // does to numbers is settled.
  void publish_manifest(bool trains) const;
  [[nodiscard]] c10::DeviceType device_of_parameters() const;
  // Whether this pass compares its tensors with the reference's itself (noise_of_ranks.h), and
  // writes no trace.
  [[nodiscard]] bool writes_table() const;
  void check_reference() const;
  // Throws if the program goes on from where the reference was not, with the reference's start
  // values in place of its own.
  void check_resumed() const;
  [[nodiscard]] std::string failed_path(std::int64_t step) const;
  void start_writer();
  void finish() noexcept;  // after the last traced step: no thread, no hook, no callback

  Environment environment_;
  const std::shared_ptr<Failure> failure_;
  RunDescription description_;
  std::string intended_;  // the precision that the program was told to compute in
  Layout layout_;
  std::vector<Layout> simulated_;  // of the other ranks that this process simulates
  Annotations annotations_;
  std::string forced_routing_;        // digest of what is followed
  std::shared_ptr<Capture> capture_;  // null before attach(); gradient hooks hold it weakly
  std::optional<Observer> observer_;
  std::optional<WriterThread> writer_;
  TensorCount start_;              // parameters that the reference stores, or would store
  std::vector<NotSeen> not_seen_;  // of every step
  std::set<std::int64_t> begun_;   // traced iterations so far
  std::optional<std::int64_t> first_iteration_;  // that the program began, traced or not
  std::optional<std::pair<std::string, Digest>>
      replaced_;                        // a parameter whose start value was replaced
  std::vector<FileDescriptor> claims_;  // of the places of its ranks, in a counting pass
  bool in_step_ = false;
  int exceptions_at_begin_ = 0;
};

}  // namespace ttrace
