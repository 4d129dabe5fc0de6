#include "hooks/session/tracer.h"

#include <ttrace/error.h>
#include <ttrace/session.h>

#include <numeric>
#include <utility>

namespace ttrace {
namespace {

// Calls body(capture) in a traced step. Throws a kept error first where the user asked for that.
template <class Body>
void when_traced(const Tracer* tracer, Body&& body) {
  if (tracer != nullptr) {
    tracer->raise_if_asked();
    body(tracer->capture());
  }
}

}  // namespace

// --- Session -----------------------------------------------------------------------------------

Session Session::from_environment() {
  auto environment = read_environment();
  return Session(environment ? std::make_unique<Tracer>(std::move(*environment)) : nullptr);
}

Session::Session(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

std::string Session::precision(const std::string& own) const {
  return active() ? tracer_->answer_precision(own) : own;
}

void Session::describe(RunDescription description) {
  if (active()) {
    tracer_->describe(std::move(description));
  }
}

void Session::simulate(std::vector<Layout> others) {
  if (active()) {
    tracer_->simulate(std::move(others));
  }
}

void Session::attach(std::vector<NamedTensor> parameters,
                     std::vector<std::pair<std::string, const torch::nn::Module*>> modules,
                     const Layout& layout,
                     const Annotations& annotations) {
  if (active()) {
    tracer_->attach(std::move(parameters), modules, layout, annotations);
  }
}

void Session::derive(const std::string& path,
                     const std::string& field,
                     int slot,
                     const std::string& dims) {
  if (active()) {
    if (Capture* capture = active_capture()) {
      capture->derive(path, field, slot, dims);
    }
  }
}

std::vector<std::string> Session::load_parameters() {
  return active() ? tracer_->load_parameters() : std::vector<std::string>();
}

void Session::not_seen(const std::string& kind, const std::string& sentence) {
  if (active()) {
    tracer_->not_seen({parse_not_seen_kind(kind), sentence});
  }
}

Step Session::step(std::int64_t iteration, const StepOptions& options) {
  return Step(active() && tracer_->begin_step(iteration, options.gathered_later) ? tracer_.get()
                                                                                 : nullptr);
}

// --- Step --------------------------------------------------------------------------------------

Step::Step(Tracer* tracer) : tracer_(tracer) {}
Step::Step(Step&& other) noexcept : tracer_(std::exchange(other.tracer_, nullptr)) {}

Step::~Step() {
  if (tracer_ != nullptr) {
    tracer_->end_step();
  }
}

bool Step::replaces_values() const {
  return tracer_ != nullptr && tracer_->capture().replaces_values();
}

void Step::fail(const std::string& reason) {
  if (tracer_ != nullptr) {
    tracer_->fail_step(reason);
  }
}

Microbatch Step::microbatch(std::int64_t index, const MicrobatchOptions& options) {
  std::shared_ptr<MicrobatchState> state;
  when_traced(tracer_, [&](Capture& capture) {
    state = capture.open_microbatch(index, options.gradient_scale);
  });
  return {tracer_, std::move(state)};
}

void Step::parameters_gathered(const std::vector<std::string>& paths) {
  when_traced(tracer_, [&](Capture& capture) { capture.parameters_gathered(paths); });
}

void Step::gradients_reduced(const std::vector<NamedTensor>& main_grads) {
  when_traced(tracer_, [&](Capture& capture) { capture.gradients_reduced(main_grads); });
}

void Step::scalar(const std::string& name, double value) {
  when_traced(tracer_, [&](Capture& capture) { capture.scalar(name, value); });
}

void Step::note(const std::string& sentence) {
  when_traced(tracer_, [&](Capture& capture) { capture.note(sentence); });
}

void Step::source(const std::string& path, const std::string& line) {
  when_traced(tracer_, [&](Capture& capture) { capture.code(CodeRole::kSource, path, line); });
}

void Step::called_at(const std::string& path, const std::string& line) {
  when_traced(tracer_, [&](Capture& capture) { capture.code(CodeRole::kCall, path, line); });
}

void Step::parameters_updated(const std::vector<OptimizerEntry>& entries) {
  when_traced(tracer_, [&](Capture& capture) { capture.parameters_updated(entries); });
}

void Step::states_before(const std::vector<OptimizerEntry>& entries,
                         const std::vector<NamedTensor>& buffers) {
  when_traced(tracer_, [&](Capture& capture) { capture.states_before(entries, buffers); });
}

void Step::buffers(const std::vector<NamedTensor>& buffers) {
  when_traced(tracer_, [&](Capture& capture) { capture.buffers(buffers); });
}

// --- Microbatch --------------------------------------------------------------------------------

Microbatch::Microbatch(Tracer* tracer, std::shared_ptr<MicrobatchState> state)
    : tracer_(tracer), state_(std::move(state)) {}

Microbatch::Microbatch(Microbatch&& other) noexcept
    : tracer_(std::exchange(other.tracer_, nullptr)), state_(std::move(other.state_)) {}

Microbatch::~Microbatch() {
  if (tracer_ != nullptr) {
    tracer_->capture().close_microbatch(state_);
  }
}

std::vector<std::int64_t> Microbatch::permutation(std::int64_t samples) {
  TTRACE_CHECK(samples >= 0,
               UsageError,
               "Microbatch::permutation got a negative number of samples, ",
               samples,
               "; pass the number of samples of the micro-batch");
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  when_traced(tracer_, [&](Capture& capture) {
    // Nobody says which dimension of an operator's result holds samples, so a zoom keeps their
    // order.
    const NoisePolicy* const noise = capture.zooms() ? nullptr : capture.noise();
    if (noise != nullptr) {
      order = noise->order(samples, state_->index);
      state_->order = order;
    }
  });
  return order;
}

void Microbatch::resume() {
  when_traced(tracer_, [&](Capture& capture) { capture.use_microbatch(state_); });
}

void Microbatch::data(const std::string& name, const at::Tensor& tensor) {
  when_traced(tracer_, [&](Capture& capture) {
    capture.use_microbatch(state_);
    capture.data(state_, name, tensor);
  });
}

void Microbatch::loss(const at::Tensor& per_token) {
  when_traced(tracer_, [&](Capture& capture) {
    capture.use_microbatch(state_);
    capture.loss(state_, per_token);
  });
}

void Microbatch::sent(const std::string& path, const at::Tensor& tensor, int slot) {
  when_traced(tracer_, [&](Capture& capture) { capture.sent(state_, path, slot, tensor); });
}

void Microbatch::received(const std::string& path, const at::Tensor& tensor, int slot) {
  when_traced(tracer_, [&](Capture& capture) { capture.received(state_, path, slot, tensor); });
}

}  // namespace ttrace
