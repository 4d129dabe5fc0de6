#include "hooks/session/tracer.h"

#include "hooks/base/byte_buffers.h"
#include "hooks/base/step_clock.h"
#include "hooks/base/take_snapshot.h"
#include "hooks/replace/dyadic_values.h"
#include "hooks/replace/forced_values.h"
#include "hooks/session/departure.h"
#include "hooks/session/numerics.h"
#include "trace/base/dyadic_inputs.h"
#include "trace/base/precision.h"
#include "trace/base/version.h"
#include "trace/file/attendance.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <torch/nn/module.h>
#include <torch/version.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <unistd.h>

namespace ttrace {
namespace {

// At most one session is attached in a process, because callbacks and scopes find it through a
// global.
std::atomic<bool> attached{false};

// The session that a call of exit() must stop: HDF5 closes itself then, and the writer must not use
// it any more.
struct Running {
  std::mutex mutex;
  WriterThread* writer = nullptr;
  Failure* failure = nullptr;
  pid_t process = 0;  // a forked child that exits has the pointers, but no such thread
};
Running& running() {
  static auto* const instance = new Running;  // outlives every static object
  return *instance;
}

void stop_at_exit() {
  Running& now = running();
  const std::lock_guard lock(now.mutex);
  if (now.writer == nullptr || now.process != ::getpid()) {
    return;
  }
  if (now.failure->has_file()) {
    try {
      TTRACE_THROW(UsageError, "the training program called exit() within the traced step");
    } catch (...) {
      now.failure->keep(std::current_exception());
    }
  }
  now.writer->abandon();
}

// Requires: HDF5 is already initialised. Functions that are registered at exit run in reverse
// order, so ours must be registered after HDF5's.
void set_running(WriterThread* writer, Failure* failure) {
  static const bool registered = std::atexit(stop_at_exit) == 0;
  TTRACE_CHECK(registered, InternalError, "atexit() cannot register a function");
  Running& now = running();
  const std::lock_guard lock(now.mutex);
  now.writer = writer;
  now.failure = failure;
  now.process = ::getpid();
}

std::vector<at::Tensor> buffers_of(
    const std::vector<std::pair<std::string, const torch::nn::Module*>>& modules) {
  std::vector<at::Tensor> buffers;
  for (const auto& [path, module] : modules) {
    if (module == nullptr) {
      continue;
    }
    for (const at::Tensor& buffer : module->buffers(false)) {
      if (buffer.defined() && buffer.has_storage()) {
        buffers.push_back(buffer);
      }
    }
  }
  return buffers;
}

}  // namespace

Tracer::Tracer(Environment environment)
    : environment_(std::move(environment)),
      failure_(std::make_shared<Failure>(environment_.raise)) {}

Tracer::~Tracer() {
  if (in_step_) {
    end_step();
  }
  finish();
  if (capture_ != nullptr) {
    attached = false;
    expect_no_more();
    // A program that is watched every so often may end between two traced steps.
    if (environment_.every == 1 && !failure_->failed() && !begun_.empty() &&
        !begun_.contains(environment_.last_step - 1)) {
      log(LogLevel::kWarning,
          "the program ended before iteration " + std::to_string(environment_.last_step - 1) +
              ", the last one of TTRACE_STEPS, so the trace is incomplete");
    }
  }
}

// --- setting up --------------------------------------------------------------------------------

std::string Tracer::answer_precision(const std::string& own) {
  std::string answer = environment_.precision.empty() ? own : environment_.precision;
  if (!own.empty()) {
    intended_ = answer;
  }
  return answer;
}

void Tracer::describe(RunDescription description) {
  description_ = std::move(description);
  environment_.untraced.clear();
  for (const std::string& pattern : description_.untraced) {
    environment_.untraced.emplace_back("RunDescription::untraced", pattern);
  }
}

void Tracer::simulate(std::vector<Layout> others) {
  simulated_ = std::move(others);
}

std::vector<Layout> Tracer::ranks() const {
  std::vector<Layout> all = {layout_};
  all.insert(all.end(), simulated_.begin(), simulated_.end());
  return all;
}

void Tracer::check_simulation() const {
  if (simulated_.empty()) {
    return;
  }
  TTRACE_CHECK(environment_.pass == Pass::kCandidate,
               UsageError,
               "this program simulates ",
               layout_.world_size,
               " ranks in one process, which a ",
               name_of(environment_.pass),
               " pass cannot follow; simulate the candidate, and run the reference on one device");
  const char* const unable = environment_.dyadic ? "--dyadic replaces its values"
                             : environment_.zoom ? "a zoom lists its operators"
                             : environment_.collectives
                                 ? "--collectives records what they are given"
                                 : nullptr;
  TTRACE_CHECK(
      unable == nullptr,
      UsageError,
      unable,
      ", which is not possible for ranks that one process simulates; leave the option out, "
      "or start a process for every rank");
}

void Tracer::attach(std::vector<NamedTensor> parameters,
                    const std::vector<std::pair<std::string, const torch::nn::Module*>>& modules,
                    const Layout& layout,
                    const Annotations& annotations) {
  check_precision(parameters);
  layout_ = layout;
  check_simulation();
  annotations_ = annotations;
  TTRACE_CHECK(
      !attached.exchange(true),
      UsageError,
      "Session::attach was called twice in this process; keep one Session and attach once");
  try {
    configure_snapshots(
        {.blocking = environment_.blocking_copies, .ring_bytes = environment_.ring_bytes});
    if (environment_.pass == Pass::kNoise) {
      check_reference();
      if (!writes_table()) {
        environment_.directory = noise_trace(environment_.reference, environment_.noise_seed);
      }
    }
    const auto followed = FollowedChoices::of(environment_);
    forced_routing_ = followed == nullptr ? "" : followed->digest();
    auto given = given_values();
    const bool moves = moves_codes(given.get());
    auto capture = std::make_shared<Capture>(Capture::Parts{environment_,
                                                            layout,
                                                            annotations,
                                                            std::move(parameters),
                                                            ModuleIndex(modules),
                                                            followed,
                                                            std::move(given),
                                                            buffers_of(modules),
                                                            moves,
                                                            simulated_},
                                             failure_);
    std::swap(capture_, capture);
    check_placements();
    if (environment_.count_only) {
      for (const Layout& rank : ranks()) {
        claims_.push_back(claim_rank(environment_.directory, rank.rank, rank.world_size));
      }
    }
    publish_manifest(false);
    capture_->watch_parameters();
    observer_.emplace();
    if (!writes_table() && environment_.every == 1) {
      expect_steps(
          environment_.directory, layout.rank, environment_.first_step, environment_.last_step);
    }
  } catch (...) {
    capture_.reset();
    attached = false;
    throw;
  }
}

std::unique_ptr<const GivenValues> Tracer::given_values() const {
  if (environment_.pass == Pass::kForced) {
    return std::make_unique<ForcedValues>(
        environment_.candidate, environment_.reference, environment_.settled);
  }
  if (environment_.dyadic) {
    const bool follows = environment_.pass == Pass::kCandidate;
    return std::make_unique<DyadicValues>(follows ? environment_.reference : std::string());
  }
  return nullptr;
}

bool Tracer::moves_codes(const GivenValues* given) const {
  return environment_.pass == Pass::kForced && !environment_.reference.empty() &&
         environment_.precision == read_manifest(environment_.reference).precision &&
         !given->holds(Kind::kScale);
}

void Tracer::check_precision(const std::vector<NamedTensor>& parameters) const {
  const std::string& asked = environment_.precision;
  TTRACE_CHECK(asked.empty() || description_.precision.empty() || asked == description_.precision,
               UsageError,
               "TTRACE_PRECISION=",
               asked,
               ", but the program declares that it computes in ",
               description_.precision,
               "; start it with the requested precision, or let it follow Session::precision()");
  for (const NamedTensor& parameter : parameters) {
    require_readable(parameter.path, parameter.tensor, "cannot be attached");
    TTRACE_CHECK(is_canonical_path(parameter.path),
                 UsageError,
                 "parameter '",
                 parameter.path,
                 "' has no canonical path; use parts of letters, digits, _ and - joined by dots");
    TTRACE_CHECK(!parameter.flat_first,
                 UsageError,
                 "parameter ",
                 parameter.path,
                 " is attached as a flat shard; attach all of this rank's part of it");
    const ElementType type = element_type_of(parameter.tensor).value();
    // A parameter without a gradient may be state of a higher precision, like the biases of a
    // router.
    const bool is_state = !parameter.tensor.requires_grad();
    TTRACE_CHECK(
        asked.empty() || !is_floating(type) || is_state || type == precision_of(asked).stored,
        UsageError,
        "parameter ",
        parameter.path,
        " is ",
        name_of(type),
        ", but TTRACE_PRECISION is ",
        asked,
        "; start the program with that precision, or let it follow Session::precision()");
  }
}

void Tracer::check_placements() const {
  for (const Parameter& parameter : capture_->parameters().all()) {
    const Placement placement = annotations_.placement(
        Kind::kParam, parameter.path, 0, shape_of(parameter.tensor), layout_);
    validate(placement);
  }
}

void Tracer::publish_manifest(bool trains) const {
  if (writes_table() || layout_.rank != 0 || environment_.count_only) {
    return;
  }
  Manifest manifest;
  manifest.pass = name_of(environment_.pass);
  manifest.world_size = layout_.world_size;
  manifest.steps = environment_.steps();
  manifest.precision =
      description_.precision.empty() ? environment_.precision : description_.precision;
  manifest.intended = intended_;
  for (const Axis& axis : layout_.axes) {
    manifest.layout[axis.name] = std::to_string(axis.size);
  }
  manifest.model = description_.model;
  manifest.data = description_.data;
  if (environment_.dyadic) {
    manifest.data[kInputsKey] = kDyadicInputs;
  }
  manifest.versions = description_.versions;
  manifest.untraced = description_.untraced;
  manifest.roles = annotations_.roles();
  manifest.versions["ttrace"] = own_version();
  manifest.versions["torch"] = TORCH_VERSION;
  manifest.forced_routing = forced_routing_;
  manifest.run = environment_.run;
  manifest.first_iteration = first_iteration_;
  if (trains) {
    const c10::DeviceType device = device_of_parameters();
    manifest.numerics = numerics_of(device);
    manifest.versions.merge(library_versions(device));
  }
  write_manifest(environment_.directory, manifest);
}

// An accelerator, where any parameter lies on one.
c10::DeviceType Tracer::device_of_parameters() const {
  for (const Parameter& parameter : capture_->parameters().all()) {
    if (!parameter.tensor.is_cpu()) {
      return parameter.tensor.device().type();
    }
  }
  return c10::DeviceType::CPU;
}

bool Tracer::writes_table() const {
  return environment_.pass == Pass::kNoise && layout_.world_size == 1;
}

void Tracer::check_reference() const {
  const Manifest manifest = read_manifest(environment_.reference);
  TTRACE_CHECK(manifest.world_size == layout_.world_size,
               UsageError,
               "this noise pass runs on ",
               layout_.world_size,
               " ranks, but ",
               manifest.world_size,
               " wrote the reference ",
               environment_.reference,
               "; repeat the reference's command unchanged");
  TTRACE_CHECK(manifest.model == description_.model && manifest.data == description_.data,
               UsageError,
               "this noise pass has another model or other data than the reference ",
               environment_.reference,
               "; repeat the reference's command unchanged");
}

void Tracer::not_seen(NotSeen fact) {
  if (in_step_) {
    capture_->not_seen(fact);
  } else {
    not_seen_.push_back(std::move(fact));
  }
}

// --- steps -------------------------------------------------------------------------------------

bool Tracer::begin_step(std::int64_t iteration, const std::vector<std::string>& gathered_later) {
  raise_if_asked();
  note_step(iteration);
  if (!first_iteration_) {
    first_iteration_ = iteration;
    check_resumed();
  }
  if (!environment_.traces(iteration) && !environment_.leads_up(iteration)) {
    return false;
  }
  TTRACE_CHECK(capture_ != nullptr,
               UsageError,
               "Session::step was called before Session::attach; attach the model first");
  TTRACE_CHECK(!in_step_,
               UsageError,
               "iteration ",
               iteration,
               " begins before another traced step has ended; end that Step first");
  TTRACE_CHECK(begun_.insert(iteration).second,
               UsageError,
               "iteration ",
               iteration,
               " was traced already; give every iteration of the training loop its own number");
  failure_->set_file(failed_path(iteration));
  if (failure_->failed()) {
    return false;  // an earlier step failed: this one says so in its `.failed` file
  }
  exceptions_at_begin_ = std::uncaught_exceptions();
  const StepClock clock;
  try {
    if (begun_.size() == 1) {
      publish_manifest(true);  // programs choose their settings until here
    }
    start_writer();
    writer_->begin_step(iteration, clock.began());
    set_running(&*writer_, failure_.get());
  } catch (...) {
    failure_->keep(std::current_exception());
    raise_if_asked();
    return false;
  }
  in_step_ = true;
  capture_->begin_step(iteration, clock, &*writer_, gathered_later);
  for (const NotSeen& fact : not_seen_) {
    capture_->not_seen(fact);
  }
  set_active_capture(capture_.get());
  observer_->enable();
  return true;
}

void Tracer::start_writer() {
  if (writer_) {
    return;
  }
  const auto make_sink = [this](const Layout& rank) {
    if (environment_.count_only) {
      return make_count_sink(environment_, rank, start_);
    }
    return writes_table() ? make_noise_sink(environment_) : make_file_sink(environment_, rank);
  };
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const Layout& rank : ranks()) {
    sinks.push_back(make_sink(rank));
  }
  writer_.emplace(sinks.size() == 1 ? std::move(sinks.front()) : make_rank_sinks(std::move(sinks)),
                  [failure = failure_](const std::exception_ptr& error) { failure->keep(error); });
}

void Tracer::fail_step(const std::string& reason) noexcept {
  try {
    TTRACE_THROW(UsageError, reason);
  } catch (...) {
    failure_->keep(std::current_exception());
  }
}

void Tracer::end_step() noexcept {
  in_step_ = false;
  if (std::uncaught_exceptions() > exceptions_at_begin_) {
    fail_step("the training program threw an exception within the traced step");
  }
  try {
    observer_->disable();
    set_active_capture(nullptr);
    capture_->end_step();
    writer_->end_step([failure = failure_] { return !failure->failed(); });
  } catch (...) {
    failure_->keep(std::current_exception());
  }
  try {
    failure_->set_file({});
    if (*begun_.rbegin() == environment_.last_step - 1) {
      finish();
    }
  } catch (...) {
    failure_->keep(std::current_exception());
  }
}

void Tracer::finish() noexcept {
  try {
    set_running(nullptr, nullptr);
    writer_.reset();
    release_snapshot_memory();
    ByteBuffers::of_process().clear();
    observer_.reset();
    if (capture_ != nullptr) {
      capture_->release_parameters();
    }
  } catch (...) {
    failure_->keep(std::current_exception());
  }
}

std::string Tracer::failed_path(std::int64_t step) const {
  if (!writes_table()) {
    return failed_file(environment_.directory, step, layout_.rank);
  }
  // Next to the noise table, which is not written.
  return std::filesystem::path(noise_file(environment_.reference, environment_.noise_seed))
      .replace_extension(".failed")
      .string();
}

}  // namespace ttrace
