#include "options.h"

#include <ttrace/error.h>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <sstream>

namespace megatron_mini {

namespace {

namespace po = boost::program_options;

po::options_description description() {
  po::options_description result(
      "megatron_mini: trains a small GPT with tensor, sequence, context, data and pipeline "
      "parallelism.\n"
      "Several ranks: run_ranks N megatron_mini --config FILE ...\n\nOptions");
  auto add = result.add_options();
  add("config", po::value<std::string>()->value_name("FILE"), "configuration (required)");
  add("precision", po::value<std::string>()->value_name("P"), "f64, f32, bf16 or fp8");
  add("seed", po::value<std::uint64_t>()->value_name("N"), "of data and initial values");
  add("micro-batches", po::value<std::int64_t>()->value_name("N"), "per step, over all ranks");
  add("steps", po::value<std::int64_t>()->value_name("N")->default_value(1), "iterations");
  add("tp", po::value<int>()->value_name("N")->default_value(1), "tensor-parallel ranks");
  add("cp", po::value<int>()->value_name("N")->default_value(1), "context-parallel ranks");
  add("dp", po::value<int>()->value_name("N"), "data-parallel ranks (default: all others)");
  add("pp", po::value<int>()->value_name("N")->default_value(1), "pipeline stages, 1F1B");
  add("vpp",
      po::value<int>()->value_name("N")->default_value(1),
      "virtual stages on each rank, interleaved 1F1B");
  add("first-stage-layers",
      po::value<std::int64_t>()->value_name("N"),
      "layers of the first stage (default: as the others)");
  add("last-stage-layers",
      po::value<std::int64_t>()->value_name("N"),
      "layers of the last stage (default: as the others)");
  add("sp", po::bool_switch(), "sequence parallelism over the tensor-parallel ranks");
  add("layer-tp",
      po::value<std::string>()->value_name("LIST"),
      "TP degree of each layer, 1 or that of --tp: 2,1,...");
  add("recompute",
      po::value<std::string>()->value_name("WHAT"),
      "run again in backward: full (layers) or selective (core attention)");
  add("recompute-layers",
      po::value<std::int64_t>()->value_name("N"),
      "layers of a part (default: 1)");
  add("ep", po::value<int>()->value_name("N")->default_value(1), "expert-parallel ranks");
  add("etp", po::value<int>()->value_name("N"), "tensor-parallel ranks of experts (default: --tp)");
  add("zero1", po::bool_switch(), "divide the optimizer over the ranks of dp and cp");
  add("overlap-gather", po::bool_switch(), "gather updated parameters during the next forward");
  add("bug", po::value<std::string>()->value_name("NAME"), "switch a silent bug on");
  add("bug-size", po::value<double>()->value_name("X"), "magnitude of a bug that has one");
  add("list-bugs", po::bool_switch(), "print one line of JSON per bug");
  add("mutant", po::value<std::string>()->value_name("NAME"), "plant an error of a chosen size");
  add("mutant-size", po::value<double>()->value_name("X"), "its size");
  add("mutant-layer",
      po::value<std::int64_t>()->value_name("N")->default_value(0),
      "its layer, from 0");
  add("annotations",
      po::value<std::string>()->value_name("FILE")->default_value(MEGATRON_MINI_ANNOTATIONS,
                                                                  "gpt.ttrace.yaml"),
      "placements of tensors");
  add("digest", po::bool_switch(), "print a digest of every step's results on all ranks");
  add("help", po::bool_switch(), "print this");
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
    TTRACE_THROW(UsageError, error.what(), "; see --help");
  }
  return values;
}

std::string help() {
  std::ostringstream out;
  out << description();
  return out.str();
}

std::string bug_list() {
  std::string lines;
  for (const auto& bug : load_bugs(MEGATRON_MINI_BUGS)) {
    if (bug.pending) {
      continue;
    }
    const nlohmann::ordered_json line = {{"name", bug.name},
                                         {"source", bug.source},
                                         {"needs", bug.needs},
                                         {"expected", bug.expected},
                                         {"hint", bug.hint}};
    lines += line.dump() + "\n";
  }
  return lines;
}

template <class T>
std::optional<T> optional(const po::variables_map& values, const char* name) {
  return values.contains(name) ? std::optional<T>(values[name].as<T>()) : std::nullopt;
}

bool has_whole_layers(const Options& options) {
  const auto& degrees = options.layer_tp;
  return std::any_of(
      degrees.begin(), degrees.end(), [&](int degree) { return degree < options.tp; });
}

// By the names of bugs.yaml's vocabulary.
RunFacts facts_of(const Options& options, const Config& config) {
  const bool is_fp8 = config.precision == Precision::kFP8;
  return {{"tp", options.tp},
          {"sp", options.sequence_parallel ? 1 : 0},
          {"cp", options.cp},
          {"dp", options.dp},
          {"pp", options.pp},
          {"vpp", options.vpp},
          {"first_stage_layers", options.first_stage_layers.value_or(0)},
          {"last_stage_layers", options.last_stage_layers.value_or(0)},
          {"zero1", options.zero1 ? 1 : 0},
          {"overlap_gather", options.overlap_gather ? 1 : 0},
          {"layers", config.model.layers},
          {"micro_batches", config.data.micro_batches},
          {"micro_batch_size", config.data.micro_batch_size},
          {"swiglu", config.model.activation == Activation::kSwiglu ? 1 : 0},
          {"tied", config.model.tied ? 1 : 0},
          {"ep", options.ep},
          {"etp", options.etp},
          {"local_experts", config.model.experts / options.ep},
          {"experts", config.model.experts},
          {"top_k", config.model.top_k},
          {"aux_loss", config.model.aux_loss > 0.0 ? 1 : 0},
          {"z_loss", config.model.z_loss > 0.0 ? 1 : 0},
          {"expert_bias", config.model.expert_bias > 0.0 ? 1 : 0},
          {"packed", config.data.documents == Documents::kPacked ? 1 : 0},
          {"loss_mask", config.data.masked == Masked::kNone ? 0 : 1},
          {"per_token", config.loss == Loss::kPerToken ? 1 : 0},
          {"clip", config.optimizer.clip > 0.0 ? 1 : 0},
          {"dropout", config.model.dropout > 0.0 ? 1 : 0},
          {"attention_dropout", config.model.attention_dropout > 0.0 ? 1 : 0},
          {"frozen", config.model.frozen.empty() ? 0 : 1},
          {"layer_tp", has_whole_layers(options) ? 1 : 0},
          {"recompute_full", options.recompute.parts == RecomputedParts::kFull ? 1 : 0},
          {"recompute_layers", options.recompute.layers},
          {"recompute_selective", options.recompute.parts == RecomputedParts::kSelective ? 1 : 0},
          {"precision", static_cast<std::int64_t>(config.precision)},
          {"bf16", static_cast<std::int64_t>(Precision::kBF16)},
          {"fp8", is_fp8 ? 1 : 0},
          {"delayed", is_fp8 && config.fp8.recipe == Fp8Recipe::kDelayed ? 1 : 0},
          {"bf16_ends", is_fp8 ? config.fp8.bf16_ends : 0}};
}

void check_zero1(const Options& options) {
  TTRACE_CHECK(!options.zero1 || options.dp * options.cp >= 2,
               UsageError,
               "--zero1 divides the optimizer over --dp ",
               options.dp,
               " times --cp ",
               options.cp,
               " ranks, which must be 2 or more");
  TTRACE_CHECK(
      !options.overlap_gather || options.zero1, UsageError, "--overlap-gather needs --zero1");
}

std::vector<int> read_layer_tp(const std::string& list, int tp) {
  std::vector<int> degrees;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    TTRACE_CHECK(word == "1" || word == std::to_string(tp),
                 UsageError,
                 "--layer-tp has the degree `",
                 word,
                 "`, which is neither 1 nor --tp ",
                 tp);
    degrees.push_back(std::stoi(word));
  }
  return degrees;
}

RecomputePlan read_recompute(const po::variables_map& values) {
  RecomputePlan plan;
  if (const auto what = optional<std::string>(values, "recompute")) {
    TTRACE_CHECK(*what == "full" || *what == "selective",
                 UsageError,
                 "--recompute `",
                 *what,
                 "` is none of full, selective");
    plan.parts = *what == "full" ? RecomputedParts::kFull : RecomputedParts::kSelective;
  }
  const auto layers = optional<std::int64_t>(values, "recompute-layers");
  TTRACE_CHECK(!layers || plan.parts == RecomputedParts::kFull,
               UsageError,
               "--recompute-layers needs --recompute full");
  plan.layers = layers.value_or(1);
  return plan;
}

void check_expert_layout(const Options& options) {
  const int ranks = options.tp * options.cp * options.dp;
  TTRACE_CHECK(
      options.etp >= 1 && options.ep >= 1 && ranks % (std::int64_t{options.etp} * options.ep) == 0,
      UsageError,
      "--etp ",
      options.etp,
      " times --ep ",
      options.ep,
      " must divide --tp times --cp times --dp, which is ",
      ranks);
  TTRACE_CHECK(options.sequence_parallel || options.tp == 1 || options.etp == options.tp,
               UsageError,
               "--etp ",
               options.etp,
               " other than --tp ",
               options.tp,
               " needs --sp, without which tensor-parallel ranks hold the same tokens");
}

void check_layout(const Options& options, int world_size) {
  TTRACE_CHECK(std::int64_t{options.tp} * options.cp * options.dp * options.pp == world_size,
               UsageError,
               "--tp ",
               options.tp,
               " times --cp ",
               options.cp,
               " times --dp ",
               options.dp,
               " times --pp ",
               options.pp,
               " must be the number of ranks, which is ",
               world_size,
               "; start with run_ranks N");
  TTRACE_CHECK(!options.sequence_parallel || options.tp >= 2,
               UsageError,
               "--sp needs --tp 2 or more, not ",
               options.tp);
  check_expert_layout(options);
  check_zero1(options);
  TTRACE_CHECK(options.vpp >= 1, UsageError, "--vpp ", options.vpp, " must be at least 1");
  TTRACE_CHECK(options.vpp == 1 || options.pp >= 2,
               UsageError,
               "--vpp ",
               options.vpp,
               " needs --pp 2 or more, not ",
               options.pp);
}

void check_micro_batches(const Options& options, std::int64_t micro_batches) {
  TTRACE_CHECK(micro_batches >= 1 && micro_batches % options.dp == 0,
               UsageError,
               "micro_batches ",
               micro_batches,
               " must be a positive multiple of --dp ",
               options.dp);
  const std::int64_t local = micro_batches / options.dp;
  TTRACE_CHECK(options.vpp == 1 || local % options.pp == 0,
               UsageError,
               "with --vpp the ",
               local,
               " micro-batches of each data-parallel rank must be a multiple of --pp ",
               options.pp);
}

// Ranks of an axis, cut from what the axes before it have left of the run.
int axis_size(const po::variables_map& values, const std::string& axis, int& left) {
  const int size = values[axis].as<int>();
  TTRACE_CHECK(size >= 1 && left % size == 0,
               UsageError,
               "--",
               axis,
               " ",
               size,
               axis == "tp" ? " must divide the number of ranks, which is "
                            : " must divide the number of ranks that are left to it, which is ",
               left,
               "; start with run_ranks N");
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
  if (const auto list = optional<std::string>(values, "layer-tp")) {
    options.layer_tp = read_layer_tp(*list, options.tp);
  }
  options.recompute = read_recompute(values);
  check_layout(options, world_size);
}

Mutant read_mutant(const po::variables_map& values) {
  const auto name = optional<std::string>(values, "mutant");
  const auto size = optional<double>(values, "mutant-size");
  TTRACE_CHECK(name.has_value() == size.has_value(),
               UsageError,
               "--mutant NAME and --mutant-size X need each other");
  return name ? Mutant::named(*name, *size, values["mutant-layer"].as<std::int64_t>()) : Mutant();
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
    result.text = bug_list();
    return result;
  }
  Options& options = result.options;
  TTRACE_CHECK(values.contains("config"), UsageError, "--config FILE is missing; see --help");
  options.config = values["config"].as<std::string>();
  options.annotations = values["annotations"].as<std::string>();
  options.precision = optional<std::string>(values, "precision");
  options.seed = optional<std::uint64_t>(values, "seed");
  options.micro_batches = optional<std::int64_t>(values, "micro-batches");
  options.steps = values["steps"].as<std::int64_t>();
  TTRACE_CHECK(options.steps >= 1, UsageError, "--steps must be at least 1");
  read_layout(values, world_size, options);
  options.digest = values["digest"].as<bool>();
  const auto bug_size = optional<double>(values, "bug-size");
  if (const auto name = optional<std::string>(values, "bug")) {
    options.bugs = Bugs::load(MEGATRON_MINI_BUGS, *name, bug_size);
  }
  TTRACE_CHECK(values.contains("bug") || !bug_size, UsageError, "--bug-size needs --bug NAME");
  options.mutant = read_mutant(values);
  return result;
}

Config load_config(const Options& options) {
  Config config = load_config(options.config);
  if (options.precision) {
    config.precision = parse_precision(*options.precision);
  }
  config.data.seed = options.seed.value_or(config.data.seed);
  config.data.micro_batches = options.micro_batches.value_or(config.data.micro_batches);
  TTRACE_CHECK(config.model.experts > 1 || options.etp == options.tp,
               UsageError,
               "--etp ",
               options.etp,
               " other than --tp ",
               options.tp,
               " needs model.experts of at least 2, not ",
               config.model.experts);
  TTRACE_CHECK(config.model.experts % options.ep == 0,
               UsageError,
               "--ep ",
               options.ep,
               " does not divide model.experts ",
               config.model.experts);
  check_micro_batches(options, config.data.micro_batches);
  TTRACE_CHECK(options.layer_tp.empty() || std::ssize(options.layer_tp) == config.model.layers,
               UsageError,
               "--layer-tp has ",
               options.layer_tp.size(),
               " degrees, but the model has ",
               config.model.layers,
               " layers");
  TTRACE_CHECK(options.recompute.layers >= 1 && options.recompute.layers <= config.model.layers,
               UsageError,
               "--recompute-layers ",
               options.recompute.layers,
               " must lie between 1 and the number of layers, which is ",
               config.model.layers);
  TTRACE_CHECK(config.precision != Precision::kFP8 || config.model.experts == 1,
               UsageError,
               "--precision fp8 with model.experts ",
               config.model.experts,
               " is not implemented; use bf16, or experts 1");
  options.bugs.check_can_act(facts_of(options, config));
  options.mutant.check_can_act(config.model, options.tp, options.sequence_parallel);
  return config;
}

}  // namespace megatron_mini
