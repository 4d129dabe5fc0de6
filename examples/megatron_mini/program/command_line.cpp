#include "command_line.h"

#include "../error.h"
#include "../faults/fault_options.h"

#include <boost/program_options.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

namespace megatron_mini {

namespace {

namespace po = boost::program_options;

void add_device_options(po::options_description& description) {
  auto add = description.add_options();
  add("device",
      po::value<std::string>()->value_name("TYPE")->default_value("cpu"),
      "type of the devices that ranks compute on, cpu or cuda: each rank takes that of its number "
      "on its machine, modulo their number");
  add("backend",
      po::value<std::string>()->value_name("NAME"),
      "what carries the ranks' tensors: mpi, or nccl, which is the default of --device cuda");
}

void add_layer_options(po::options_description& description) {
  auto add = description.add_options();
  add("layer-tp",
      po::value<std::string>()->value_name("LIST"),
      "tensor-parallel degree of each layer, 1 or that of --tp: 2,1,...");
  add("layer-dp",
      po::bool_switch(),
      "divide the samples of a micro-batch over the ranks that a layer's smaller degree leaves "
      "free; the degrees of --layer-tp may then be any that divide --tp");
}

po::options_description description() {
  po::options_description result(
      "megatron_mini: trains a small GPT with tensor, sequence, context, data and pipeline "
      "parallelism.\n"
      "Several ranks: run_ranks N megatron_mini --config FILE ...\n\nOptions");
  auto add = result.add_options();
  add("config", po::value<std::string>()->value_name("FILE"), "configuration file (required)");
  add("precision", po::value<std::string>()->value_name("P"), "precision: f64, f32, bf16 or fp8");
  add("seed", po::value<std::uint64_t>()->value_name("N"), "seed of samples and initial values");
  add("micro-batches",
      po::value<std::int64_t>()->value_name("N"),
      "number of micro-batches per step, over all ranks");
  add("steps",
      po::value<std::int64_t>()->value_name("N")->default_value(1),
      "number of iterations");
  add("tp", po::value<int>()->value_name("N")->default_value(1), "number of tensor-parallel ranks");
  add("cp",
      po::value<int>()->value_name("N")->default_value(1),
      "number of context-parallel ranks");
  add("dp",
      po::value<int>()->value_name("N"),
      "number of data-parallel ranks (default: all that are left)");
  add("pp",
      po::value<int>()->value_name("N")->default_value(1),
      "number of pipeline stages (1F1B)");
  add("vpp",
      po::value<int>()->value_name("N")->default_value(1),
      "number of virtual stages per rank (interleaved 1F1B)");
  add("first-stage-layers",
      po::value<std::int64_t>()->value_name("N"),
      "number of layers of the first stage (default: as the others)");
  add("last-stage-layers",
      po::value<std::int64_t>()->value_name("N"),
      "number of layers of the last stage (default: as the others)");
  add("sp", po::bool_switch(), "use sequence parallelism over the tensor-parallel ranks");
  add_layer_options(result);
  add("recompute",
      po::value<std::string>()->value_name("WHAT"),
      "recompute in backward: full (layers) or selective (core attention)");
  add("recompute-layers",
      po::value<std::int64_t>()->value_name("N"),
      "number of layers that are recomputed together (default: 1)");
  add("ep", po::value<int>()->value_name("N")->default_value(1), "number of expert-parallel ranks");
  add("etp",
      po::value<int>()->value_name("N"),
      "number of tensor-parallel ranks of experts (default: --tp)");
  add("zero1", po::bool_switch(), "shard the optimizer over the ranks of dp and cp");
  add("overlap-gather", po::bool_switch(), "gather updated parameters during the next forward");
  add_device_options(result);
  faults::add_options(result);
  add("annotations",
      po::value<std::string>()->value_name("FILE")->default_value(MEGATRON_MINI_ANNOTATIONS,
                                                                  "gpt.ttrace.yaml"),
      "annotation file with the placements of tensors");
  add("digest", po::bool_switch(), "print a digest of every step's results on all ranks");
  add("help", po::bool_switch(), "print this text");
  return result;
}

po::variables_map parse(int argc, const char* const* argv) {
  po::variables_map values;
  try {
    constexpr int kStyle =
        po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(argc, argv)
                  .options(description())
                  .positional({})
                  .style(kStyle)
                  .run(),
              values);
  } catch (const po::error& error) {
    fail<UsageError>(error.what(), "; see --help");
  }
  return values;
}

std::string help() {
  std::ostringstream out;
  out << description();
  return out.str();
}

template <class T>
std::optional<T> optional(const po::variables_map& values, const char* name) {
  return values.contains(name) ? std::optional<T>(values[name].as<T>()) : std::nullopt;
}

void check_zero1(const Options& options) {
  require<UsageError>(!options.zero1 || options.dp * options.cp >= 2,
                      "--zero1 divides the optimizer over --dp ",
                      options.dp,
                      " times --cp ",
                      options.cp,
                      " ranks, but needs at least 2");
  require<UsageError>(!options.overlap_gather || options.zero1, "--overlap-gather needs --zero1");
}

std::vector<int> read_layer_tp(const std::string& list, int tp, bool layer_dp) {
  std::vector<int> degrees;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    int degree = 0;
    std::from_chars(word.data(), word.data() + word.size(), degree);
    const bool divides = degree >= 1 && tp % degree == 0 && word == std::to_string(degree);
    require<UsageError>(
        divides, "--layer-tp has the degree `", word, "`, which does not divide --tp ", tp);
    require<UsageError>(layer_dp || degree == 1 || degree == tp,
                        "--layer-tp has the degree `",
                        word,
                        "`, which is neither 1 nor --tp ",
                        tp,
                        "; add --layer-dp");
    degrees.push_back(degree);
  }
  return degrees;
}

RecomputePlan read_recompute(const po::variables_map& values) {
  RecomputePlan plan;
  if (const auto what = optional<std::string>(values, "recompute")) {
    require<UsageError>(*what == "full" || *what == "selective",
                        "--recompute is `",
                        *what,
                        "`; it must be full or selective");
    plan.parts = *what == "full" ? RecomputedParts::kFull : RecomputedParts::kSelective;
  }
  const auto layers = optional<std::int64_t>(values, "recompute-layers");
  require<UsageError>(!layers || plan.parts == RecomputedParts::kFull,
                      "--recompute-layers needs --recompute full");
  plan.layers = layers.value_or(1);
  return plan;
}

CommunicationBackend read_backend(const po::variables_map& values, const std::string& device) {
  const auto name =
      optional<std::string>(values, "backend").value_or(device == "cuda" ? "nccl" : "mpi");
  require<UsageError>(
      name == "mpi" || name == "nccl", "--backend is `", name, "`; it must be mpi or nccl");
  require<UsageError>(name == "mpi" || device == "cuda",
                      "--backend nccl carries tensors of GPUs, but --device is ",
                      device,
                      "; add --device cuda, or use --backend mpi");
  return name == "mpi" ? CommunicationBackend::kMpi : CommunicationBackend::kNccl;
}

void check_expert_layout(const Options& options) {
  const int ranks = options.tp * options.cp * options.dp;
  require<UsageError>(
      options.etp >= 1 && options.ep >= 1 && ranks % (std::int64_t{options.etp} * options.ep) == 0,
      "--etp ",
      options.etp,
      " times --ep ",
      options.ep,
      " must divide --tp times --cp times --dp, which is ",
      ranks);
  require<UsageError>(options.sequence_parallel || options.tp == 1 || options.etp == options.tp,
                      "--etp ",
                      options.etp,
                      " other than --tp ",
                      options.tp,
                      " needs --sp, without which tensor-parallel ranks hold the same tokens");
}

void check_layout(const Options& options, int world_size) {
  require<UsageError>(std::int64_t{options.tp} * options.cp * options.dp * options.pp == world_size,
                      "--tp ",
                      options.tp,
                      " times --cp ",
                      options.cp,
                      " times --dp ",
                      options.dp,
                      " times --pp ",
                      options.pp,
                      " must equal the number of ranks, which is ",
                      world_size,
                      "; start the program with run_ranks N");
  require<UsageError>(
      !options.sequence_parallel || options.tp >= 2, "--sp needs --tp 2 or more, not ", options.tp);
  check_expert_layout(options);
  check_zero1(options);
  require<UsageError>(options.vpp >= 1, "--vpp ", options.vpp, " must be at least 1");
  require<UsageError>(options.vpp == 1 || options.pp >= 2,
                      "--vpp ",
                      options.vpp,
                      " needs --pp 2 or more, not ",
                      options.pp);
}

// Ranks of an axis, cut from what the axes before it have left of the run.
int axis_size(const po::variables_map& values, const std::string& axis, int& left) {
  const int size = values[axis].as<int>();
  require<UsageError>(size >= 1 && left % size == 0,
                      "--",
                      axis,
                      " ",
                      size,
                      axis == "tp"
                          ? " must divide the number of ranks, which is "
                          : " must divide the number of ranks that are left to it, which is ",
                      left,
                      "; start the program with run_ranks N");
  left /= size;
  return size;
}

void read_layout(const po::variables_map& values, int world_size, Options& options) {
  int left = world_size;
  options.tp = axis_size(values, "tp", left);
  options.cp = axis_size(values, "cp", left);
  options.pp = axis_size(values, "pp", left);
  options.dp = optional<int>(values, "dp").value_or(left);
  options.vpp = values["vpp"].as<int>();
  options.first_stage_layers = optional<std::int64_t>(values, "first-stage-layers");
  options.last_stage_layers = optional<std::int64_t>(values, "last-stage-layers");
  options.sequence_parallel = values["sp"].as<bool>();
  options.ep = values["ep"].as<int>();
  options.etp = optional<int>(values, "etp").value_or(options.tp);
  options.zero1 = values["zero1"].as<bool>();
  options.overlap_gather = values["overlap-gather"].as<bool>();
  options.layer_dp = values["layer-dp"].as<bool>();
  if (const auto list = optional<std::string>(values, "layer-tp")) {
    options.layer_tp = read_layer_tp(*list, options.tp, options.layer_dp);
  }
  require<UsageError>(
      !options.layer_dp || !options.layer_tp.empty(),
      "--layer-dp needs --layer-tp LIST, which says in which layers ranks are free");
  options.recompute = read_recompute(values);
  check_layout(options, world_size);
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, int world_size) {
  const po::variables_map values = parse(argc, argv);
  CommandLine result;
  if (values["help"].as<bool>()) {
    result.text = help();
    return result;
  }
  if (values["list-bugs"].as<bool>()) {
    result.text = faults::bug_list();
    return result;
  }
  Options& options = result.options;
  require<UsageError>(values.contains("config"), "--config FILE is missing; see --help");
  options.config = values["config"].as<std::string>();
  options.annotations = values["annotations"].as<std::string>();
  options.precision = optional<std::string>(values, "precision");
  options.seed = optional<std::uint64_t>(values, "seed");
  options.micro_batches = optional<std::int64_t>(values, "micro-batches");
  options.steps = values["steps"].as<std::int64_t>();
  require<UsageError>(options.steps >= 1, "--steps must be at least 1");
  read_layout(values, world_size, options);
  options.digest = values["digest"].as<bool>();
  options.device = values["device"].as<std::string>();
  options.backend = read_backend(values, options.device);
  result.fault = faults::read_choice(values);
  return result;
}

}  // namespace megatron_mini
