#include "config.h"

#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>

namespace ttrace::reference {
namespace {

// One map of the file; remembers what was asked for, so that what nobody asked for can be named.
class Reader {
 public:
  // `name` is the map's key in the file, empty for the file itself.
  Reader(const YAML::Node& node, std::string file, std::string name)
      : node_(node), file_(std::move(file)), name_(std::move(name)) {
    TTRACE_CHECK(
        node_.IsMap(), UsageError, file_, ": ", label(), " must be a map of keys to values");
  }

  template <class T>
  T get(const std::string& key) {
    const YAML::Node value = child(key);
    try {
      return value.as<T>();
    } catch (const YAML::Exception&) {
      TTRACE_THROW(UsageError,
                   where(value),
                   qualified(key),
                   " has a value of the wrong type: ",
                   value.IsScalar() ? value.Scalar() : "not a single value");
    }
  }

  // One of `choices` by its name, or the first one where the file does not say.
  template <class T>
  T choice(const std::string& key, std::initializer_list<T> choices) {
    known_.insert(key);
    const YAML::Node value = node_[key];
    if (!value.IsDefined()) {
      return *choices.begin();
    }
    const auto text = get<std::string>(key);
    std::string names;
    for (const T possible : choices) {
      if (to_string(possible) == text) {
        return possible;
      }
      names += (names.empty() ? "" : " or ") + to_string(possible);
    }
    TTRACE_THROW(UsageError, where(value), qualified(key), " is '", text, "'; use ", names);
  }

  // What the file says, or `absent`.
  template <class T>
  T get_or(const std::string& key, const T& absent) {
    known_.insert(key);
    return node_[key].IsDefined() ? get<T>(key) : absent;
  }

  Reader section(const std::string& key) { return {child(key), file_, key}; }

  // Throws for a key that no get() or section() has read.
  void finish() const {
    for (const auto& item : node_) {
      const auto key = item.first.as<std::string>();
      TTRACE_CHECK(known_.contains(key),
                   UsageError,
                   where(item.first),
                   "unknown key '",
                   qualified(key),
                   "'; remove it or correct its spelling");
    }
  }

 private:
  YAML::Node child(const std::string& key) {
    known_.insert(key);
    const YAML::Node value = node_[key];
    TTRACE_CHECK(
        value.IsDefined(), UsageError, file_, ": '", qualified(key), "' is missing; add it");
    return value;
  }
  [[nodiscard]] std::string label() const { return name_.empty() ? "the file" : "'" + name_ + "'"; }
  [[nodiscard]] std::string qualified(const std::string& key) const {
    return name_.empty() ? key : name_ + "." + key;
  }
  [[nodiscard]] std::string where(const YAML::Node& node) const {
    return file_ + ":" + std::to_string(node.Mark().line + 1) + ": ";
  }

  YAML::Node node_;
  std::string file_;
  std::string name_;
  std::set<std::string> known_;
};

Activation parse_activation(const std::string& text) {
  for (const Activation activation : {Activation::kGelu, Activation::kSwiglu}) {
    if (text == to_string(activation)) {
      return activation;
    }
  }
  TTRACE_THROW(UsageError, "model.activation is '", text, "'; use gelu or swiglu");
}

ModelConfig read_model(Reader reader) {
  ModelConfig model;
  model.layers = reader.get<std::int64_t>("layers");
  model.hidden = reader.get<std::int64_t>("hidden");
  model.heads = reader.get<std::int64_t>("heads");
  model.query_groups = reader.get<std::int64_t>("query_groups");
  model.ffn = reader.get<std::int64_t>("ffn");
  model.vocabulary = reader.get<std::int64_t>("vocabulary");
  model.sequence = reader.get<std::int64_t>("sequence");
  model.activation = parse_activation(reader.get<std::string>("activation"));
  model.tied = reader.get<bool>("tied");
  model.rotary_base = reader.get<std::int64_t>("rotary_base");
  model.norm_epsilon = reader.get<double>("norm_epsilon");
  model.dropout = reader.get_or("dropout", 0.0);
  model.attention_dropout = reader.get_or("attention_dropout", 0.0);
  model.label_smoothing = reader.get_or("label_smoothing", 0.0);
  model.frozen = reader.get_or("frozen", std::vector<std::int64_t>());
  model.experts = reader.get_or<std::int64_t>("experts", model.experts);
  model.top_k = reader.get_or<std::int64_t>("top_k", model.top_k);
  model.shared_expert = reader.get_or<std::int64_t>("shared_expert", model.shared_expert);
  model.aux_loss = reader.get_or<double>("aux_loss", model.aux_loss);
  model.z_loss = reader.get_or<double>("z_loss", model.z_loss);
  model.expert_bias = reader.get_or<double>("expert_bias", model.expert_bias);
  reader.finish();
  return model;
}

DataConfig read_data(Reader reader, const std::filesystem::path& folder) {
  DataConfig data;
  data.file = (folder / reader.get<std::string>("file")).lexically_normal().string();
  data.seed = reader.get<std::uint64_t>("seed");
  data.micro_batch_size = reader.get<std::int64_t>("micro_batch_size");
  data.micro_batches = reader.get<std::int64_t>("micro_batches");
  data.documents = reader.choice("documents", {Documents::kSingle, Documents::kPacked});
  data.masked = reader.choice("masked", {Masked::kNone, Masked::kPrompt});
  reader.finish();
  return data;
}

OptimizerConfig read_optimizer(Reader reader) {
  OptimizerConfig optimizer;
  optimizer.learning_rate = reader.get<double>("learning_rate");
  optimizer.beta1 = reader.get<double>("beta1");
  optimizer.beta2 = reader.get<double>("beta2");
  optimizer.epsilon = reader.get<double>("epsilon");
  optimizer.weight_decay = reader.get<double>("weight_decay");
  optimizer.clip = reader.get<double>("clip");
  reader.finish();
  return optimizer;
}

Fp8Config read_fp8(Reader reader) {
  Fp8Config fp8;
  fp8.recipe = reader.choice(
      "recipe",
      {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8});
  fp8.history = reader.get_or("history", fp8.history);
  fp8.bf16_ends = reader.get_or("bf16_ends", fp8.bf16_ends);
  reader.finish();
  return fp8;
}

template <class T>
void require_positive(const char* key, T value) {
  TTRACE_CHECK(value > 0, UsageError, key, " is ", value, "; it must be positive");
}

void require_fraction(const char* key, double value) {
  TTRACE_CHECK(
      value >= 0.0 && value < 1.0, UsageError, key, " is ", value, "; it must lie in [0, 1)");
}

void check_model(const ModelConfig& model) {
  require_positive("model.layers", model.layers);
  require_positive("model.hidden", model.hidden);
  require_positive("model.heads", model.heads);
  require_positive("model.query_groups", model.query_groups);
  require_positive("model.ffn", model.ffn);
  require_positive("model.sequence", model.sequence);
  require_positive("model.rotary_base", model.rotary_base);
  require_positive("model.norm_epsilon", model.norm_epsilon);
  require_fraction("model.dropout", model.dropout);
  require_fraction("model.attention_dropout", model.attention_dropout);
  require_fraction("model.label_smoothing", model.label_smoothing);
  for (const std::int64_t number : model.frozen) {
    TTRACE_CHECK(number >= 0 && number < model.layers,
                 UsageError,
                 "model.frozen has layer ",
                 number,
                 ", but the last of model.layers is ",
                 model.layers - 1);
  }
  TTRACE_CHECK(model.hidden % model.heads == 0,
               UsageError,
               "model.hidden ",
               model.hidden,
               " is not divisible by model.heads ",
               model.heads);
  TTRACE_CHECK(model.heads % model.query_groups == 0,
               UsageError,
               "model.heads ",
               model.heads,
               " is not divisible by model.query_groups ",
               model.query_groups);
  TTRACE_CHECK(model.head_size() % 2 == 0,
               UsageError,
               "the head size ",
               model.head_size(),
               " (model.hidden / model.heads) is odd; rotary positions turn pairs of numbers");
  TTRACE_CHECK(model.vocabulary >= 257,
               UsageError,
               "model.vocabulary is ",
               model.vocabulary,
               "; it must be at least 257 (256 bytes and the beginning-of-sample token)");
}

void check_experts(const ModelConfig& model) {
  require_positive("model.experts", model.experts);
  require_positive("model.top_k", model.top_k);
  TTRACE_CHECK(model.top_k <= model.experts,
               UsageError,
               "model.top_k is ",
               model.top_k,
               ", but a token cannot go to more than model.experts ",
               model.experts);
  const std::pair<const char*, double> settings[] = {
      {"model.shared_expert", static_cast<double>(model.shared_expert)},
      {"model.aux_loss", model.aux_loss},
      {"model.z_loss", model.z_loss},
      {"model.expert_bias", model.expert_bias}};
  for (const auto& [key, value] : settings) {
    TTRACE_CHECK(value >= 0.0, UsageError, key, " is ", value, "; it must not be negative");
    TTRACE_CHECK(value == 0.0 || model.experts > 1,
                 UsageError,
                 key,
                 " is ",
                 value,
                 ", which needs model.experts of at least 2, not ",
                 model.experts);
  }
}

void check_optimizer(const OptimizerConfig& optimizer) {
  require_positive("optimizer.learning_rate", optimizer.learning_rate);
  require_positive("optimizer.epsilon", optimizer.epsilon);
  require_positive("optimizer.clip", optimizer.clip);
  TTRACE_CHECK(optimizer.weight_decay >= 0.0,
               UsageError,
               "optimizer.weight_decay is ",
               optimizer.weight_decay,
               "; it must not be negative");
  for (const double beta : {optimizer.beta1, optimizer.beta2}) {
    TTRACE_CHECK(beta >= 0.0 && beta < 1.0,
                 UsageError,
                 "one of the optimizer.betas is ",
                 beta,
                 "; both must lie in [0, 1)");
  }
}

}  // namespace

std::string to_string(Activation activation) {
  return activation == Activation::kGelu ? "gelu" : "swiglu";
}

std::string to_string(Documents documents) {
  return documents == Documents::kSingle ? "single" : "packed";
}

std::string to_string(Masked masked) {
  return masked == Masked::kNone ? "none" : "prompt";
}

std::string to_string(Loss loss) {
  return loss == Loss::kMean ? "mean" : "per_token";
}

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::kF64:
      return "f64";
    case Precision::kF32:
      return "f32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp8:
      return "fp8";
    case Precision::kFp8F32:
      return "fp8_f32";
  }
  TTRACE_THROW(InternalError, "a precision has no name");
}

std::string to_string(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::kDelayed:
      return "delayed";
    case Fp8Recipe::kCurrent:
      return "current";
    case Fp8Recipe::kBlockwise:
      return "blockwise";
    case Fp8Recipe::kMxfp8:
      return "mxfp8";
  }
  TTRACE_THROW(InternalError, "an FP8 recipe has no name");
}

Precision parse_precision(const std::string& text) {
  for (const Precision precision :
       {Precision::kF64, Precision::kF32, Precision::kBf16, Precision::kFp8, Precision::kFp8F32}) {
    if (text == to_string(precision)) {
      return precision;
    }
  }
  TTRACE_THROW(UsageError, "the precision is '", text, "'; use f64, f32, bf16, fp8 or fp8_f32");
}

void check(const Config& config) {
  check_model(config.model);
  check_experts(config.model);
  TTRACE_CHECK(!is_fp8(config.precision) || config.model.experts == 1,
               UsageError,
               "precision fp8 with model.experts ",
               config.model.experts,
               " is not implemented; use bf16, or experts 1");
  TTRACE_CHECK(config.data.documents == Documents::kSingle || config.model.sequence >= 4,
               UsageError,
               "model.sequence is ",
               config.model.sequence,
               "; with packed documents it must be at least 4");
  require_positive("data.micro_batch_size", config.data.micro_batch_size);
  require_positive("data.micro_batches", config.data.micro_batches);
  check_optimizer(config.optimizer);
  require_positive("fp8.history", config.fp8.history);
  TTRACE_CHECK(config.fp8.bf16_ends >= 0,
               UsageError,
               "fp8.bf16_ends is ",
               config.fp8.bf16_ends,
               "; it must not be negative");
}

Config load_config(const std::string& file) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(file);
  } catch (const YAML::BadFile&) {
    TTRACE_THROW(UsageError, "cannot read the configuration ", file, "; pass --config FILE");
  } catch (const YAML::Exception& error) {
    TTRACE_THROW(UsageError, file, " is not valid YAML: ", error.what());
  }
  Reader reader(root, file, "");
  Config config;
  config.model = read_model(reader.section("model"));
  config.data = read_data(reader.section("data"), std::filesystem::path(file).parent_path());
  config.optimizer = read_optimizer(reader.section("optimizer"));
  if (root["fp8"]) {
    config.fp8 = read_fp8(reader.section("fp8"));
  }
  config.loss = reader.choice("loss", {Loss::kMean, Loss::kPerToken});
  config.precision = parse_precision(reader.get<std::string>("precision"));
  if (const auto start = reader.get_or<std::string>("start", ""); !start.empty()) {
    config.start = (std::filesystem::path(file).parent_path() / start).lexically_normal().string();
  }
  reader.finish();
  check(config);
  return config;
}

}  // namespace ttrace::reference
