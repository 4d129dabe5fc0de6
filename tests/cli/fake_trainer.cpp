// A program that obeys TTRACE_* as a traced trainer does, without torch: in one process it writes
// all ranks' files of a small made-up model, a noise table or start parameters, and misbehaves on
// request.
//
//   --ranks N             ranks of a tensor-parallel run (default 1: one device)
//   --differ              one output is 10 % too large
//   --off X               outputs and gradients are X times as far from the reference's as noise
//                         passes are
//   --hidden N            model size (default 8): another one refuses a comparison
//   --only PASS           the switches below apply in this pass only; "dry" is the candidate's dry
//                         step
//   --exit-before N       exit code, before anything is written but the manifest
//   --exit-after N        exit code, after everything is written
//   --crash               a real segmentation fault, after the manifest
//   --kill-after N        a real SIGKILL within rank 1 (rank 0 of one): N tensors of the step are
//                         flushed, one more is not
//   --hang                never completes
//   --linger              completes, then keeps running
//   --linger-daemon       completes and exits, but leaves a process of a session of its own
//   --ignore-sigterm      with --hang or --linger
//   --never-attach        exits without writing anything
//   --has-steps N         exits after the steps 0 to N - 1, none of which is traced
//   --fail-step           writes rank00000.failed instead of a file and keeps running
//   --plain               its modules have other names: layers.0.fc1 for
//                         decoder.layers.0.mlp.linear_fc1
//   --route A,B,C,D       a router chooses these experts for four tokens; the output depends on
//   them
//   --margin X            of the choices (default 0.001, what noise passes move them by)
//   --own-route           exits where another run's choices are to be gone on with
//   --machine K=V,..      what its manifest says the machine does to numbers
//   --torch V             what its manifest says torch's version is
//   --irreproducible      a second run without noise is off by as much as noise passes
//   --precision P         what it says it computes in where nothing else is asked for (default f32)
//   --tag TEXT            ignored: makes the process findable
#include "hooks/base/environment.h"
#include "trace/base/dyadic_inputs.h"
#include "trace/file/attendance.h"
#include "trace/file/capture_counts.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_writer.h"
#include "trace/merge/draws.h"
#include "trace/merge/routing.h"
#include "trace/place/fill.h"

#include <ttrace/dims.h>
#include <ttrace/layout.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace po = boost::program_options;
using ttrace::Kind;

constexpr std::uint64_t kSeed = 7;
constexpr float kNoise = 1e-6F;  // by which noise passes move a tensor

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Tensor {
  Kind kind;
  std::string path;
  std::string dims;
  std::int64_t microbatch;
};

std::vector<Tensor> model() {
  const std::string first = "decoder.layers.0.mlp.linear_fc1";
  const std::string second = "decoder.layers.0.mlp.linear_fc2";
  return {{Kind::kParam, first + ".weight", "f[tp] h", ttrace::kNoMicrobatch},
          {Kind::kOutput, first, "s b f[tp]", 0},
          {Kind::kOutput, second, "s b h", 0},
          {Kind::kMainGrad, first + ".weight", "f[tp] h", ttrace::kNoMicrobatch}};
}

constexpr auto kRouter = "decoder.layers.0.mlp.router";

// "0,1,2,3"
std::vector<std::int64_t> parse_route(const std::string& text) {
  std::vector<std::int64_t> experts;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    experts.push_back(std::stoll(word));
  }
  return experts;
}

class Trainer {
 public:
  explicit Trainer(const po::variables_map& values)
      : values_(values), ranks_(values["ranks"].as<int>()), hidden_(values["hidden"].as<int>()) {
    const std::string steps = variable("TTRACE_STEPS");
    first_ = std::stoll(steps);
    last_ = std::stoll(steps.substr(steps.find(':') + 1));
    if (values.count("route") != 0) {
      route_ = parse_route(values["route"].as<std::string>());
      followed_ = route_;
    }
    const std::string candidate = variable("TTRACE_CANDIDATE");
    if (!candidate.empty() && !route_.empty()) {
      const ttrace::Trace trace = ttrace::Trace::open(candidate);
      const ttrace::Routing routing = ttrace::read_routing(trace);
      followed_ = routing.at(routing_id(first_, ttrace::kChoicesSlot)).experts;
      if (variable("TTRACE_PASS") == "reference") {
        forced_routing_ = ttrace::digest_of_choices(trace);
      }
    }
    const bool applies =
        values.count("only") == 0 || values["only"].as<std::string>() == variable("TTRACE_PASS");
    if (applies && values.count("kill-after") != 0) {
      kill_after_ = values["kill-after"].as<int>();
    }
  }

  // The path as this program calls it.
  [[nodiscard]] std::string named(const std::string& path) const {
    static const std::string canonical = "decoder.layers.0.mlp.";
    if (values_.count("plain") == 0) {
      return path;
    }
    const std::string name = path.substr(canonical.size());
    return "layers.0." + (name == "router" ? name : name.substr(std::string("linear_").size()));
  }

  // Stands for a session that ended before its traced step.
  void write_attendance(std::int64_t steps) const {
    static_cast<void>(ttrace::claim_rank(directory(), 0, ranks_));
    ttrace::Attendance seen{.awaited = first_, .first = {}, .last = {}};
    if (steps > 0) {
      seen.first = 0;
      seen.last = steps - 1;
    }
    ttrace::write_attendance(directory(), 0, seen);
  }

  [[nodiscard]] ttrace::TensorId id_of(const Tensor& tensor, std::int64_t step) const {
    return {.step = step,
            .microbatch = tensor.microbatch,
            .kind = tensor.kind,
            .path = named(tensor.path)};
  }

  [[nodiscard]] ttrace::TensorId routing_id(std::int64_t step, int slot) const {
    return {.step = step,
            .microbatch = 0,
            .kind = Kind::kRouting,
            .path = named(kRouter),
            .slot = slot};
  }

  void write_manifest() const {
    ttrace::Manifest manifest;
    manifest.pass = variable("TTRACE_PASS");
    manifest.world_size = ranks_;
    for (std::int64_t step = first_; step < last_; ++step) {
      manifest.steps.push_back(step);
    }
    const std::string precision = variable("TTRACE_PRECISION");
    manifest.precision = precision.empty() ? values_["precision"].as<std::string>() : precision;
    manifest.intended = manifest.precision;
    if (ranks_ > 1) {
      manifest.layout["tp"] = std::to_string(ranks_);
    }
    manifest.forced_routing = forced_routing_;
    manifest.run = variable("TTRACE_RUN");
    std::istringstream machine(values_["machine"].as<std::string>());
    for (std::string fact; std::getline(machine, fact, ',');) {
      const std::size_t sign = fact.find('=');
      manifest.numerics[fact.substr(0, sign)] = fact.substr(sign + 1);
    }
    if (values_.count("torch") != 0) {
      manifest.versions["torch"] = values_["torch"].as<std::string>();
    }
    manifest.model["hidden"] = std::to_string(hidden_);
    if (variable("TTRACE_INPUTS") == "dyadic") {
      manifest.data[ttrace::kInputsKey] = ttrace::kDyadicInputs;
    }
    std::filesystem::create_directories(directory());
    ttrace::write_manifest(directory(), manifest);
  }

  void write_trace() const {
    for (int rank = 0; rank < ranks_; ++rank) {
      ttrace::Layout layout;
      layout.rank = rank;
      layout.world_size = ranks_;
      layout.add("tp", ranks_, rank);
      if (variable("TTRACE_PASS") == "reference") {
        write_start(layout);
      }
      for (std::int64_t step = first_; step < last_; ++step) {
        write_step(step, layout);
      }
    }
  }

  // Stands for a counting capture: every tensor of the model, as on one device.
  void write_counts() const {
    for (int rank = 0; rank < ranks_; ++rank) {
      write_counts(rank);
    }
  }

  void write_counts(int rank) const {
    ttrace::CaptureCounts counts{.rank = rank, .world_size = ranks_, .steps = {}, .start = {}};
    for (std::int64_t step = first_; step < last_; ++step) {
      for (const Tensor& tensor : model()) {
        std::uint64_t elements = 1;
        for (const auto& dim : ttrace::parse_dims(tensor.dims).dims) {
          elements *= static_cast<std::uint64_t>(dim.front().axes.empty() ? hidden_ : 4 * hidden_);
        }
        counts.steps[step][tensor.kind] += {1, elements * sizeof(float)};
      }
    }
    counts.start = counts.steps[first_][Kind::kParam];
    ttrace::write_counts(directory(), counts);
  }

  void write_noise() const {
    ttrace::NoisePass pass{.seed = std::stoi(variable("TTRACE_NOISE_SEED")), .rows = {}};
    const bool moves = pass.seed != ttrace::kSelfCheckSeed || values_.count("irreproducible") != 0;
    const double noise = moves ? kNoise : 0.0;
    for (std::int64_t step = first_; step < last_; ++step) {
      for (const Tensor& tensor : model()) {
        if (tensor.kind != Kind::kParam) {
          pass.rows.push_back(
              {.id = id_of(tensor, step), .sum_squared = noise * noise, .max_abs = noise});
        }
      }
      if (!route_.empty()) {
        pass.rows.push_back(
            {.id = routing_id(step, ttrace::kMarginsSlot), .sum_squared = 1e-6, .max_abs = 1e-3});
      }
    }
    pass.run = variable("TTRACE_RUN");
    ttrace::write_noise(variable("TTRACE_REFERENCE"), pass);
  }

  void write_failure() const {
    const std::string path = ttrace::failed_file(directory(), first_, 0);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const std::string temporary = path + ".tmp";
    std::ofstream(temporary) << "rank 0: the moon was full\n";
    std::filesystem::rename(temporary, path);
  }

 private:
  static std::string directory() { return variable("TTRACE_DIR"); }

  void write_start(const ttrace::Layout& layout) const {
    ttrace::TraceWriter writer(ttrace::start_file(directory(), layout.rank), layout);
    append(writer, model().front(), 0, layout);
    writer.commit();
  }

  void write_step(std::int64_t step, const ttrace::Layout& layout) const {
    ttrace::TraceWriter writer(ttrace::step_file(directory(), step, layout.rank), layout);
    const bool doomed = kill_after_ >= 0 && layout.rank == std::min(ranks_ - 1, 1);
    int written = 0;
    for (const Tensor& tensor : model()) {
      if (doomed && written == kill_after_) {
        writer.flush();
      }
      if (tensor.kind == Kind::kMainGrad && !route_.empty()) {
        append_routing(writer, step);
      }
      append(writer, tensor, step, layout);
      if (doomed && written++ == kill_after_) {
        std::raise(SIGKILL);
      }
    }
    writer.commit();
  }

  void append_routing(ttrace::TraceWriter& writer, std::int64_t step) const {
    ttrace::Record choices;
    choices.id = routing_id(step, ttrace::kChoicesSlot);
    choices.type = ttrace::ElementType::kI64;
    choices.shape = {std::ssize(route_), 1};
    choices.placement = ttrace::whole(choices.shape);
    choices.order = ++order_;
    writer.append(choices, std::as_bytes(std::span(route_)));
    ttrace::Record margins;
    margins.id = routing_id(step, ttrace::kMarginsSlot);
    margins.shape = {std::ssize(route_)};
    margins.placement = ttrace::whole(margins.shape);
    margins.order = ++order_;
    const std::vector<float> values(route_.size(), values_["margin"].as<float>());
    writer.append(margins, std::as_bytes(std::span(values)));
  }

  void append(ttrace::TraceWriter& writer,
              const Tensor& tensor,
              std::int64_t step,
              const ttrace::Layout& layout) const {
    std::vector<std::int64_t> shape;
    const ttrace::DimsSpec dims = ttrace::parse_dims(tensor.dims);
    for (const auto& dim : dims.dims) {
      const bool cut = !dim.front().axes.empty();
      shape.push_back(cut ? 4 * hidden_ / ranks_ : hidden_);
    }
    ttrace::Record record;
    record.id = id_of(tensor, step);
    record.shape = shape;
    record.placement = ttrace::place(dims, shape, layout);
    record.order = ++order_;
    std::vector<float> values(static_cast<std::size_t>(ttrace::element_count(shape)));
    ttrace::fill(
        tensor.path, record.placement, kSeed, {}, ttrace::ElementType::kF32, values.data());
    if (values_.count("differ") != 0 && tensor.kind == Kind::kOutput &&
        dims.dims.back().front().axes.empty()) {
      for (float& value : values) {
        value *= 1.1F;
      }
    }
    const bool whole = record.placement.logical_shape() == shape;
    if (tensor.kind != Kind::kParam && (whole || layout.rank == 0)) {
      values.front() += values_["off"].as<float>() * kNoise;
    }
    if (tensor.kind == Kind::kMainGrad && !followed_.empty()) {
      for (float& value : values) {
        value *= static_cast<float>(1 + followed_.back());
      }
    }
    writer.append(record, std::as_bytes(std::span(values)));
  }

  const po::variables_map& values_;
  int ranks_;
  int hidden_;
  int kill_after_ = -1;
  std::vector<std::int64_t> route_;     // its own choices
  std::vector<std::int64_t> followed_;  // those that it reuses
  std::string forced_routing_;
  std::int64_t first_ = 0;
  std::int64_t last_ = 1;
  mutable std::uint64_t order_ = 0;
};

[[noreturn]] void run_forever() {
  for (;;) {
    pause();
  }
}

void leave_daemon() {
  if (fork() == 0) {
    setsid();
    run_forever();
  }
}

po::variables_map parse(int argc, char** argv) {
  po::options_description options;
  options.add_options()("ranks", po::value<int>()->default_value(1))(
      "hidden", po::value<int>()->default_value(8))("differ", "")("plain", "")(
      "off", po::value<float>()->default_value(0.0F))("only", po::value<std::string>())(
      "exit-before", po::value<int>())("kill-after", po::value<int>())(
      "exit-after", po::value<int>())("crash", "")("hang", "")("linger", "")("linger-daemon", "")(
      "route", po::value<std::string>())("margin", po::value<float>()->default_value(0.001F))(
      "own-route", "")("irreproducible", "")("machine",
                                             po::value<std::string>()->default_value(""))(
      "precision", po::value<std::string>()->default_value("f32"))("ignore-sigterm", "")(
      "never-attach", "")("has-steps", po::value<std::int64_t>())("fail-step", "")(
      "torch", po::value<std::string>())("tag", po::value<std::string>());
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, options), values);
  return values;
}

void print_environment() {
  const std::vector<std::string> shown{
      "TTRACE_", "OMPI_COMM_", "PMIX_", "OMPI_MCA_mca_base_env_list="};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (std::any_of(shown.begin(), shown.end(), [&text](const std::string& prefix) {
          return text.starts_with(prefix);
        })) {
      std::cout << text << std::endl;
    }
  }
}

int train(const po::variables_map& values) {
  const std::string pass = variable("TTRACE_PASS");
  const bool counts = variable("TTRACE_COUNT") == "1";
  const std::string called = counts && pass == "candidate" ? "dry" : pass;
  const bool applies = values.count("only") == 0 || values["only"].as<std::string>() == called;
  const auto asked = [&](const char* name) { return applies && values.count(name) != 0; };
  print_environment();
  // Throws where a session would refuse its variables.
  static_cast<void>(ttrace::read_environment());
  if (asked("ignore-sigterm")) {
    std::signal(SIGTERM, SIG_IGN);
  }
  if (asked("never-attach")) {
    return 0;
  }
  if (asked("own-route") && !variable("TTRACE_CANDIDATE").empty()) {
    std::cerr << "goes its own way" << std::endl;
    return 4;
  }
  const Trainer trainer(values);
  if (pass != "noise" && !counts) {
    trainer.write_manifest();
  }
  if (asked("has-steps")) {
    trainer.write_attendance(values["has-steps"].as<std::int64_t>());
    return 0;
  }
  if (asked("exit-before")) {
    std::cerr << "out of luck" << std::endl;
    return values["exit-before"].as<int>();
  }
  if (asked("crash")) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it otherwise
    std::raise(SIGSEGV);
  }
  if (asked("fail-step")) {
    trainer.write_failure();
  }
  if (asked("hang") || asked("fail-step")) {
    run_forever();
  }
  if (asked("linger-daemon")) {
    leave_daemon();
  }
  if (counts) {
    trainer.write_counts();
  } else if (pass == "noise") {
    trainer.write_noise();
  } else {
    trainer.write_trace();
  }
  if (asked("linger")) {
    run_forever();
  }
  return asked("exit-after") ? values["exit-after"].as<int>() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "fake_trainer: " << error.what() << std::endl;
    return 70;
  }
}
