#include "config.h"

#include "error.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>

namespace megatron_mini {

namespace {

constexpr std::int64_t kShortestPacked = 4;  // two documents of two tokens

// One mapping of the file that remembers which keys were asked for, so that the others can be
// refused.
class Section {
 public:
  Section(std::string file, std::string name, YAML::Node node)
      : file_(std::move(file)), name_(std::move(name)), node_(std::move(node)) {
    require<UsageError>(node_.IsMap(), file_, ": `", name_, "` must be a mapping");
  }

  template <class T>
  [[nodiscard]] T get(const std::string& key) {
    asked_.insert(key);
    const YAML::Node value = std::as_const(node_)[key];
    require<UsageError>(value.IsDefined(), file_, ": `", name_, ".", key, "` is missing");
    try {
      return value.as<T>();
    } catch (const YAML::Exception&) {
      fail<UsageError>(file_,
                       ": `",
                       name_,
                       ".",
                       key,
                       "` has a value of the wrong type: ",
                       value.IsScalar() ? value.Scalar() : "not a plain value");
    }
  }

  // One of `choices` by its name, or the first one where the file does not say.
  template <class T>
  [[nodiscard]] T choice(const std::string& key, std::initializer_list<T> choices) {
    asked_.insert(key);
    if (!std::as_const(node_)[key]) {
      return *choices.begin();
    }
    const auto asked = get<std::string>(key);
    std::string names;
    for (const T candidate : choices) {
      if (name_of(candidate) == asked) {
        return candidate;
      }
      names += (names.empty() ? "" : ", ") + name_of(candidate);
    }
    fail<UsageError>(file_, ": `", name_, ".", key, "` is ", asked, "; it must be one of ", names);
  }

  template <class T>
  [[nodiscard]] T positive(const std::string& key) {
    const T value = get<T>(key);
    require<UsageError>(
        value > T{0}, file_, ": `", name_, ".", key, "` must be above 0, not ", value);
    return value;
  }

  // What the file says, or `fallback` where it does not.
  template <class T>
  [[nodiscard]] T optional(const std::string& key, const T& fallback) {
    asked_.insert(key);
    return std::as_const(node_)[key] ? get<T>(key) : fallback;
  }

  // A number in [0, 1), 0 where the file does not say.
  [[nodiscard]] double fraction(const std::string& key) {
    const auto value = optional<double>(key, 0.0);
    require<UsageError>(value >= 0.0 && value < 1.0,
                        file_,
                        ": `",
                        name_,
                        ".",
                        key,
                        "` must be at least 0 and below 1, not ",
                        value);
    return value;
  }

  // `otherwise` where the file does not say.
  template <class T>
  [[nodiscard]] T at_least(const std::string& key, T least, T otherwise) {
    const T value = optional(key, otherwise);
    require<UsageError>(value >= least,
                        file_,
                        ": `",
                        name_,
                        ".",
                        key,
                        "` must be at least ",
                        least,
                        ", not ",
                        value);
    return value;
  }

  void refuse_others() const {
    for (const auto& item : node_) {
      const auto key = item.first.as<std::string>();
      require<UsageError>(asked_.contains(key),
                          file_,
                          ": correct or remove the unknown key `",
                          name_,
                          ".",
                          key,
                          "`");
    }
  }

 private:
  std::string file_;
  std::string name_;
  YAML::Node node_;
  std::set<std::string> asked_;
};

Activation parse_activation(const std::string& name) {
  if (name == "gelu") {
    return Activation::kGelu;
  }
  require<UsageError>(
      name == "swiglu", "the activation is `", name, "`; it must be gelu or swiglu");
  return Activation::kSwiglu;
}

ModelConfig read_model(Section section) {
  ModelConfig model;
  model.layers = section.positive<std::int64_t>("layers");
  model.hidden = section.positive<std::int64_t>("hidden");
  model.heads = section.positive<std::int64_t>("heads");
  model.query_groups = section.positive<std::int64_t>("query_groups");
  model.ffn = section.positive<std::int64_t>("ffn");
  model.vocabulary = section.positive<std::int64_t>("vocabulary");
  model.sequence = section.positive<std::int64_t>("sequence");
  model.activation = parse_activation(section.get<std::string>("activation"));
  model.tied = section.get<bool>("tied");
  model.rotary_base = section.positive<std::int64_t>("rotary_base");
  model.norm_epsilon = section.positive<double>("norm_epsilon");
  model.dropout = section.fraction("dropout");
  model.attention_dropout = section.fraction("attention_dropout");
  model.label_smoothing = section.fraction("label_smoothing");
  model.frozen = section.optional("frozen", model.frozen);
  model.experts = section.at_least("experts", std::int64_t{1}, model.experts);
  model.top_k = section.at_least("top_k", std::int64_t{1}, model.top_k);
  model.shared_expert = section.at_least("shared_expert", std::int64_t{0}, model.shared_expert);
  model.aux_loss = section.at_least("aux_loss", 0.0, model.aux_loss);
  model.z_loss = section.at_least("z_loss", 0.0, model.z_loss);
  model.expert_bias = section.at_least("expert_bias", 0.0, model.expert_bias);
  section.refuse_others();
  return model;
}

DataConfig read_data(Section section, const std::filesystem::path& folder) {
  DataConfig data;
  data.file = (folder / section.get<std::string>("file")).string();
  data.seed = section.get<std::uint64_t>("seed");
  data.micro_batch_size = section.positive<std::int64_t>("micro_batch_size");
  data.micro_batches = section.positive<std::int64_t>("micro_batches");
  data.documents = section.choice("documents", {Documents::kSingle, Documents::kPacked});
  data.masked = section.choice("masked", {Masked::kNone, Masked::kPrompt});
  section.refuse_others();
  return data;
}

OptimizerConfig read_optimizer(Section section) {
  OptimizerConfig optimizer;
  optimizer.learning_rate = section.positive<double>("learning_rate");
  optimizer.beta1 = section.get<double>("beta1");
  optimizer.beta2 = section.get<double>("beta2");
  optimizer.epsilon = section.positive<double>("epsilon");
  optimizer.weight_decay = section.get<double>("weight_decay");
  optimizer.clip = section.positive<double>("clip");
  section.refuse_others();
  return optimizer;
}

// All keys may be left out.
Fp8Config read_fp8(Section section) {
  Fp8Config fp8;
  fp8.recipe = section.choice(
      "recipe",
      {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8});
  fp8.history = section.at_least("history", std::int64_t{1}, fp8.history);
  fp8.bf16_ends = section.at_least("bf16_ends", std::int64_t{0}, fp8.bf16_ends);
  section.refuse_others();
  return fp8;
}

void check_model(const std::string& file, const ModelConfig& model) {
  require<UsageError>(model.hidden % (2 * model.heads) == 0,
                      file,
                      ": hidden ",
                      model.hidden,
                      " must be an even multiple of heads ",
                      model.heads,
                      ", because rotary embedding turns pairs of a head's elements");
  require<UsageError>(model.heads % model.query_groups == 0,
                      file,
                      ": heads ",
                      model.heads,
                      " must be a multiple of query_groups ",
                      model.query_groups);
  constexpr std::int64_t kBytesAndBeginning = 257;
  require<UsageError>(model.vocabulary >= kBytesAndBeginning,
                      file,
                      ": vocabulary ",
                      model.vocabulary,
                      " must be at least ",
                      kBytesAndBeginning,
                      ": 256 bytes and the beginning of a sample");
  for (const auto number : model.frozen) {
    require<UsageError>(number >= 0 && number < model.layers,
                        file,
                        ": frozen names layer ",
                        number,
                        ", but the model has layers 0 to ",
                        model.layers - 1);
  }
  require<UsageError>(model.top_k <= model.experts,
                      file,
                      ": top_k ",
                      model.top_k,
                      " must not be above experts ",
                      model.experts);
  const bool wants_experts = model.shared_expert > 0 || model.aux_loss > 0.0 ||
                             model.z_loss > 0.0 || model.expert_bias > 0.0;
  require<UsageError>(
      model.experts > 1 || !wants_experts,
      file,
      ": shared_expert, aux_loss, z_loss and expert_bias need experts of at least 2, not ",
      model.experts);
}

}  // namespace

Config load_config(const std::string& file) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(file);
  } catch (const YAML::BadFile&) {
    fail<UsageError>("cannot read the configuration ", file, "; pass --config FILE");
  } catch (const YAML::Exception& error) {
    fail<UsageError>(file, ":", error.mark.line + 1, ": ", error.msg);
  }
  require<UsageError>(root.IsMap(), file, ": the file must hold a mapping of keys to values");
  Section top(file, "top", root);
  const auto section = [&](const std::string& name) {
    return Section(file, name, top.get<YAML::Node>(name));
  };
  Config config;
  config.model = read_model(section("model"));
  config.data = read_data(section("data"), std::filesystem::path(file).parent_path());
  config.optimizer = read_optimizer(section("optimizer"));
  if (root["fp8"]) {
    config.fp8 = read_fp8(section("fp8"));
  }
  config.loss = top.choice("loss", {Loss::kMean, Loss::kPerToken});
  config.precision = parse_precision(top.get<std::string>("precision"));
  if (const auto start = top.optional<std::string>("start", ""); !start.empty()) {
    config.start = (std::filesystem::path(file).parent_path() / start).lexically_normal().string();
  }
  top.refuse_others();
  check_model(file, config.model);
  require<UsageError>(
      config.data.documents == Documents::kSingle || config.model.sequence >= kShortestPacked,
      file,
      ": packed documents need a sequence of at least ",
      kShortestPacked,
      ", not ",
      config.model.sequence);
  return config;
}

std::string name_of(Precision precision) {
  switch (precision) {
    case Precision::kF64:
      return "f64";
    case Precision::kF32:
      return "f32";
    case Precision::kBF16:
      return "bf16";
    case Precision::kFP8:
      return "fp8";
  }
  fail<InternalError>("a precision has no name");
}

Precision parse_precision(const std::string& name) {
  for (const auto precision :
       {Precision::kF64, Precision::kF32, Precision::kBF16, Precision::kFP8}) {
    if (name == name_of(precision)) {
      return precision;
    }
  }
  fail<UsageError>("the precision is `", name, "`; it must be f64, f32, bf16 or fp8");
}

std::string name_of(Activation activation) {
  return activation == Activation::kSwiglu ? "swiglu" : "gelu";
}

std::string name_of(Documents documents) {
  return documents == Documents::kPacked ? "packed" : "single";
}

std::string name_of(Masked masked) {
  return masked == Masked::kPrompt ? "prompt" : "none";
}

std::string name_of(Loss loss) {
  return loss == Loss::kPerToken ? "per_token" : "mean";
}

std::string name_of(Fp8Recipe recipe) {
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
  fail<InternalError>("an FP8 recipe has no name");
}

}  // namespace megatron_mini
