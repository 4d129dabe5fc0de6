// The ledger of limits as a whole: every row is named, can be switched off, and does something.
#include "analysis/bounds/ledger.h"

#include "analysis/align/tensor_pair.h"
#include "analysis/checks/excuses.h"
#include "analysis/checks/operator_check.h"
#include "analysis/checks/slices.h"
#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/collective_call.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::off;
using testing::scaled;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

using Numbers = std::vector<double>;
using Shape = std::vector<std::int64_t>;

TEST(Ledger, RowsHaveNamesOfTheirOwnAndSayWhatTheyRestOn) {
  std::set<std::string_view> names;
  for (const LedgerRow& row : ledger()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos)
        << row.name;
    EXPECT_TRUE(row.what.ends_with('.')) << row.name;
    EXPECT_TRUE(row.source.ends_with('.')) << row.name;
    EXPECT_FALSE(row.witness.empty()) << row.name;
    EXPECT_EQ(find_allowance(row.name), row.allowance);
  }
  EXPECT_EQ(find_allowance("no-such-row"), std::nullopt);
}

bool is_a_test(const std::string& filter) {
  const bool is_prefix = filter.ends_with('*');
  const std::string start = is_prefix ? filter.substr(0, filter.size() - 1) : filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = std::string(suite.name()) + '.' + suite.GetTestInfo(j)->name();
      if (is_prefix ? name.starts_with(start) : name == start) {
        return true;
      }
    }
  }
  return false;
}

// Symptom: the witness of a row named a suite that does not exist, so that it ran no
// test and passed.
TEST(Ledger, WitnessesThatAreUnitTestsExist) {
  constexpr std::string_view kProgram = "build/cpu/bin/analysis_test --gtest_filter=";
  for (const LedgerRow& row : ledger()) {
    if (row.witness.starts_with(kProgram)) {
      EXPECT_TRUE(is_a_test(std::string(row.witness.substr(kProgram.size())))) << row.name;
    }
  }
}

TEST(Ledger, EveryRowCanBeSwitchedOff) {
  for (const LedgerRow& row : ledger()) {
    Allowances allowances;
    EXPECT_TRUE(allowances.has(row.allowance));
    allowances.remove(row.allowance);
    for (const LedgerRow& other : ledger()) {
      EXPECT_EQ(allowances.has(other.allowance), other.allowance != row.allowance);
    }
  }
}

// A made-up run: every tensor is off by a little in each pass, as round-off makes it.
struct World {
  std::string precision = "bf16";
  std::string axis = "tp";
  int noise = 5;
  bool forced = true;
  bool golden = true;
  double multiple = 1.0;  // of gradients, that the candidate stores
  bool has_scales = false;
  bool rounds_operands = false;  // of F32 products
};

constexpr double kRelativeRounding = 0.0017;
constexpr int kWorldRanks = 2;

class WorldRun {
 public:
  explicit WorldRun(World world) : world_(std::move(world)) {
    for (const char* name : {"reference", "wide", "native", "golden"}) {
      passes_.emplace(name, TraceBuilder(folder_ / name, name));
    }
    passes_.emplace("candidate",
                    TraceBuilder(folder_ / "candidate", "candidate", kWorldRanks, world_.axis));
    for (auto& [name, builder] : passes_) {
      builder.manifest.precision = world_.precision;
      builder.manifest.model = {{"hidden", "128"}, {"heads", "8"}};
      if (world_.rounds_operands) {
        builder.manifest.numerics = {{"device", "cuda"}, {"f32_products", "tf32"}};
      }
    }
    noise_.resize(static_cast<std::size_t>(world_.noise));
    add_graph();
    add_step();
    reference_.emplace(passes_.at("reference").write());
    for (std::size_t pass = 0; pass < noise_.size(); ++pass) {
      write_noise(folder_ / "reference", NoisePass{static_cast<int>(pass) + 1, noise_[pass]});
    }
    candidate_.emplace(passes_.at("candidate").write());
    forced_.emplace(ForcedTraces{passes_.at("wide").write(), passes_.at("native").write()});
    golden_.emplace(passes_.at("golden").write());
  }

  [[nodiscard]] Report judged(const Allowances& allowances) const {
    DiffOptions options;
    options.threads = 1;
    options.allowances = allowances;
    options.forced = world_.forced ? &*forced_ : nullptr;
    options.golden = world_.golden ? &*golden_ : nullptr;
    return diff(*reference_, *candidate_, options);
  }

 private:
  // What may be unlike in a tensor.
  struct Errors {
    double candidate = 1.0;  // in roundings
    double noise = 1.0;
    double native = 1.0;
    ElementType type = ElementType::kF32;
    bool is_gradient = false;
    double common = 0.0;  // a factor of the candidate, of its forced passes too
    double golden = 5.0;
    double size = 1.0;  // of the values
  };

  void add(const std::string& id, const Shape& shape, const Errors& errors) {
    const auto count = static_cast<std::size_t>(element_count(shape));
    const Numbers right = scaled(wavy(count, 0.1 * static_cast<double>(++number_)), errors.size);
    const double phase = static_cast<double>(number_);
    const Numbers mine =
        scaled(off(right, errors.candidate * kRelativeRounding, phase + 1.0), 1.0 + errors.common);
    const auto put = [&](const std::string& pass, const Numbers& values) {
      passes_.at(pass).add(0, {id, values, errors.type, shape});
    };
    put("reference", right);
    put("wide", scaled(right, 1.0 + errors.common));
    put("native",
        scaled(off(right, errors.native * kRelativeRounding, phase + 2.0), 1.0 + errors.common));
    put("golden", off(right, errors.golden * kRelativeRounding, phase + 3.0));
    Placement placement = whole(shape);
    const bool is_multiple = errors.is_gradient && world_.multiple != 1.0;
    placement.scale = is_multiple ? 1.0 / world_.multiple : 1.0;
    passes_.at("candidate")
        .add_everywhere({id,
                         is_multiple ? scaled(mine, world_.multiple) : mine,
                         errors.type,
                         shape,
                         placement});
    add_noise(id, shape, right, errors);
  }

  void add_noise(const std::string& id,
                 const Shape& shape,
                 const Numbers& right,
                 const Errors& errors) {
    for (std::size_t pass = 0; pass < noise_.size(); ++pass) {
      // One pass moves by more than the others.
      const double size = errors.noise * kRelativeRounding * (pass == 2 ? 4.0 : 1.0);
      const Numbers moved = off(right, size, 40.0 + 3.0 * static_cast<double>(pass * 7 + number_));
      const TensorPair pair{
          shape, ElementType::kF64, right.data(), ElementType::kF64, moved.data()};
      const Slices slices = shape.size() < 2 ? Slices() : sum_slices(pair);
      NoiseRow row = testing::noise_row(id, 0.0, 0.0);
      for (std::size_t i = 0; i < right.size(); ++i) {
        row.sum_squared += (moved[i] - right[i]) * (moved[i] - right[i]);
        row.max_abs = std::max(row.max_abs, std::abs(moved[i] - right[i]));
        *row.along_reference += (moved[i] - right[i]) * right[i];
      }
      row.along_reference = 0.0;
      for (const SliceSums& slice : slices.sums) {
        row.slices.push_back(slice.difference_squared);
      }
      noise_[pass].push_back(std::move(row));
    }
  }

  void add_graph() {
    add("s0/param/w/0", {32, 64}, {.candidate = 0.0, .noise = 0.0, .native = 0.0});
    add("s0/param/half/0", {32, 64}, {.candidate = 0.0, .noise = 0.0, .native = 0.0});
    add("s0/m0/output/decoder.layers.0.self_attention.core_attention/0", {32, 128}, {});
    add("s0/m0/output/a/0", {32, 2, 64}, {.common = 1e-4});
    add("s0/param/biased.bias/0",
        {64},
        {.candidate = 0.0, .noise = 0.0, .native = 0.0, .size = 9e4});
    add("s0/m0/output/biased/0", {32, 64}, {});
    add("s0/m0/output/small/0", {32, 8}, {});
    add("s0/m0/output/tiny/0", {4, 8}, {});
    add("s0/m0/output/exact/0", {32, 64}, {.native = 1e-9, .golden = 0.5});
    add("s0/m0/output/noise/0", {32, 64}, {.candidate = 900.0, .noise = 700.0});
    add("s0/m0/grad_output/a/0", {32, 128}, {.is_gradient = true});
    add("s0/m0/grad_input/decoder.layers.0.self_attention.core_attention/0",
        {32, 128},
        {.is_gradient = true});
    for (const std::string m : {"0", "1"}) {
      add("s0/m" + m + "/param_grad/w/0", {32, 64}, {.is_gradient = true});
      add("s0/m" + m + "/param_grad/norm/0", {96}, {.is_gradient = true});
      if (world_.has_scales) {
        add("s0/m" + m + "/scale/fc/0", {8}, {});
      }
    }
    add("s0/m0/grad_output/quiet/0",
        {32, 128},
        {.candidate = 1e-5, .noise = 1e-5, .native = 1e-5, .is_gradient = true});
    add("s0/m0/param_grad/few/0", {12}, {.native = 3.0, .is_gradient = true});
    const TensorId id = parse_tensor_id("s0/m0/output/a/0");
    for (int rank = 0; rank < kWorldRanks; ++rank) {
      passes_.at("candidate").sum(rank, {id, ElementType::kBF16, kWorldRanks, 100.0});
    }
  }

  void add_step() {
    add("s0/scalar/grad_norm/0", {}, {.candidate = 1e-4, .native = 0.0, .type = ElementType::kF64});
    add("s0/scalar/loss/0", {}, {});
    for (const std::string kind : {"main_grad", "exp_avg", "exp_avg_sq", "master", "param_next"}) {
      add("s0/" + kind + "/w/0", {32, 64}, {});
      add("s0/" + kind + "/norm/0", {96}, {});
    }
    add("s0/main_grad/half/0", {32, 64}, {.type = ElementType::kBF16});
    add("s1/m0/output/a/0", {32, 2, 64}, {.noise = 2.0});
  }

  World world_;
  TemporaryDirectory folder_;
  std::map<std::string, TraceBuilder> passes_;
  std::vector<std::vector<NoiseRow>> noise_;
  std::optional<Trace> reference_;
  std::optional<Trace> candidate_;
  std::optional<ForcedTraces> forced_;
  std::optional<Trace> golden_;
  int number_ = 0;
};

// Whether any check or verdict is another one.
bool differ(const Report& left, const Report& right) {
  for (std::size_t i = 0; i < left.tensors.size(); ++i) {
    const TensorVerdict& one = left.tensors[i];
    const TensorVerdict& other = right.tensors.at(i);
    if (one.status() != other.status() || one.checks.size() != other.checks.size()) {
      return true;
    }
    for (std::size_t at = 0; at < one.checks.size(); ++at) {
      const Check& a = one.checks[at];
      const Check& b = other.checks[at];
      if (a.question != b.question || a.value != b.value || a.bound != b.bound ||
          a.holds != b.holds) {
        return true;
      }
    }
  }
  return false;
}

// Addends of two ranks to the gradients of biases: `width` elements, of which a pass in the
// candidate's precision errs by `native`.
Report judged_addends(std::int64_t width,
                      double native,
                      bool is_known,
                      const Allowances& allowances) {
  constexpr std::int64_t kRows = 6;
  const std::string id = "s0/m0/param_grad/norm.bias/0";
  const TemporaryDirectory folder;
  TraceBuilder candidate(folder / "candidate", "candidate", kWorldRanks, "cp");
  candidate.manifest.precision = "bf16";
  const auto count = static_cast<std::size_t>(width);
  Numbers all(count);
  for (int rank = 0; rank < kWorldRanks; ++rank) {
    const Shape shape = {kRows, width};
    const Numbers rows = wavy(static_cast<std::size_t>(kRows * width), 0.9 * rank);
    Placement held = whole(shape);
    held.dims[0] = DimPlacement{kRows, kRows * kWorldRanks, {{0, kRows * rank, kRows}}};
    candidate.add(rank, {"s0/m0/grad_output/norm/0", rows, ElementType::kF32, shape, held});
    Numbers addend(count);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      addend[i % count] += is_known ? rows[i] : std::sin(rows[i] * 9.0);
    }
    for (std::size_t i = 0; i < count; ++i) {
      all[i] += addend[i];
    }
    Placement partial = whole(Shape{width});
    partial.partial_index = rank;
    partial.partial_count = kWorldRanks;
    partial.partial_over = "cp";
    candidate.add(rank, {id, off(addend, 0.001, 2.0 + rank), ElementType::kBF16, {width}, partial});
  }
  candidate.add_everywhere({"s0/param/norm.bias/0", all, ElementType::kBF16, {width}});
  candidate.add_everywhere(
      {"s0/main_grad/norm.bias/0", off(all, 0.01, 7.0), ElementType::kBF16, {width}});
  const auto single = [&](const std::string& pass, const Numbers& values) {
    TraceBuilder builder(folder / pass, pass);
    builder.manifest.precision = "bf16";
    builder.add(0, {"s0/param/norm.bias/0", all, ElementType::kBF16, {width}})
        .add(0, {id, values, ElementType::kF32, {width}})
        .add(0, {"s0/main_grad/norm.bias/0", values, ElementType::kBF16, {width}});
    return builder.write();
  };
  const Trace reference = single("reference", all);
  const ForcedTraces forced{single("wide", all), single("native", off(all, native, 5.0))};
  DiffOptions options;
  options.threads = 1;
  options.forced = &forced;
  options.allowances = allowances;
  options.allow_missing.emplace_back("missing tensor", ".");
  return diff(reference, candidate.write(), options);
}

// One of four tokens goes to another expert, and what comes after is off.
Report judged_choices(const Allowances& allowances) {
  const std::string router = "s0/m0/routing/decoder.layers.0.mlp.router/";
  const std::string after = "s0/m0/output/decoder.layers.0/0";
  const TemporaryDirectory folder;
  const auto side = [&](const std::string& name, double second, double error) {
    Numbers values = wavy(8);
    values.front() += error;
    return TraceBuilder(folder / name, name)
        .add(0, {router + "0", {0, second, 1, 2, 2, 3, 0, 3}, ElementType::kI64, {4, 2}})
        .add(0, {router + "1", {0.004, 0.5, 0.5, 0.5}, ElementType::kF32, {4}})
        .add(0, {after, values})
        .write();
  };
  const Trace reference = side("reference", 1, 0.0);
  testing::write_noise_passes(
      folder / "reference",
      {testing::noise_row(router + "1", 0.01, 0.01), testing::noise_row(after, 0.01, 0.01)});
  DiffOptions options;
  options.allowances = allowances;
  return diff(reference, side("candidate", 3, 0.5), options);
}

// A gradient norm and a mean loss that are a little away from what they are made of.
Report judged_sums(const Allowances& allowances) {
  const TemporaryDirectory folder;
  const auto side = [&](const std::string& name, double factor) {
    return TraceBuilder(folder / name, name)
        .add(0, {"s0/m0/loss/loss/0", {1.0, 2.0, 3.0, 4.0}})
        .add(0, {"s0/scalar/loss/0", {2.5 * (1.0 + 0.1 * (factor - 1.0))}, ElementType::kF64})
        .add(0, {"s0/main_grad/a/0", {3.0, 4.0}})
        .add(0, {"s0/scalar/grad_norm/0", {5.0 * factor}, ElementType::kF64})
        .write();
  };
  const Trace reference = side("reference", 1.0);
  testing::write_noise_passes(folder / "reference",
                              {testing::noise_row("s0/m0/loss/loss/0", 0.1, 0.1),
                               testing::noise_row("s0/scalar/loss/0", 0.1, 0.1),
                               testing::noise_row("s0/main_grad/a/0", 0.1, 0.1),
                               testing::noise_row("s0/scalar/grad_norm/0", 0.1, 0.1)});
  DiffOptions options;
  options.allowances = allowances;
  return diff(reference, side("candidate", 1.0 + 5e-4), options);
}

// An operand whose scale is twice the reference's, and scales of blocks whose gradients are three
// times the reference's.
Report judged_scales(const Allowances& allowances) {
  const TemporaryDirectory folder;
  Numbers values;
  for (int i = 0; i < 64 * 64; ++i) {
    values.push_back(std::ldexp(1.0 + 0.5 * (i % 2), i % 3));
  }
  const auto side = [&](const std::string& name, double scale, double multiple) {
    TraceBuilder builder(folder / name, name);
    builder.manifest.precision = "fp8";
    Placement placement = whole(Shape{4});
    placement.scale = 1.0 / multiple;
    builder.add(0, {"s0/m0/scale/fc/0", {scale}})
        .add(0, {"s0/m0/operand/fc/0", values, ElementType::kBF16, {64, 64}})
        .add(0,
             {"s0/m0/scale/fc/2",
              scaled({1.0, 2.0, 4.0, 1.0}, multiple == 1.0 ? 1.0 : 4.0),
              ElementType::kE8M0,
              {4},
              placement});
    return builder.write();
  };
  const Trace reference = side("reference", 1.0, 1.0);
  testing::write_noise_passes(folder / "reference",
                              {testing::noise_row("s0/m0/scale/fc/0", 0.0, 0.0),
                               testing::noise_row("s0/m0/operand/fc/0", 3.0, 0.5),
                               testing::noise_row("s0/m0/scale/fc/2", 0.1, 0.1)});
  DiffOptions options;
  options.allowances = allowances;
  return diff(reference, side("candidate", 2.0, 3.0), options);
}

// Two ranks whose copies differ by as much as two runs of the reference do.
Report judged_repetition(const Allowances& allowances) {
  const TemporaryDirectory folder;
  const Numbers values = wavy(8);
  Numbers other = values;
  other.front() += 1e-3;
  const Trace reference =
      TraceBuilder(folder / "reference", "reference").add(0, {"s0/m0/output/a/0", values}).write();
  testing::write_noise_passes(folder / "reference", {testing::noise_row("s0/m0/output/a/0", 0, 0)});
  write_noise(folder / "reference",
              {kSelfCheckSeed, {testing::noise_row("s0/m0/output/a/0", 1e-3, 1e-3)}});
  TraceBuilder candidate(folder / "candidate", "candidate", kWorldRanks);
  candidate.add(0, {"s0/m0/output/a/0", values}).add(1, {"s0/m0/output/a/0", other});
  DiffOptions options;
  options.allowances = allowances;
  return diff(reference, candidate.write(), options);
}

// A tensor that code outside of the dispatcher made, which no pass moved.
Report judged_untouched(const Allowances& allowances) {
  const std::string id = "s0/m0/output/fused/0";
  const TemporaryDirectory folder;
  const auto side = [&](const std::string& name, double rounding) {
    return TraceBuilder(folder / name, name)
        .add(0, {id, off(wavy(64), rounding, 1.0), ElementType::kF32})
        .write();
  };
  const Trace reference = side("reference", 0.0);
  NoiseRow row = testing::noise_row(id, 0.0, 0.0);
  row.covered = false;
  testing::write_noise_passes(folder / "reference", {row});
  DiffOptions options;
  options.allowances = allowances;
  return diff(reference, side("candidate", 1e-7), options);
}

// BF16 keeps 8 bits: 1 + 1/256 is rounded to 1.
Report judged_collective(const Allowances& allowances) {
  const TemporaryDirectory folder;
  TraceBuilder candidate(folder / "candidate", "candidate", kWorldRanks);
  for (int rank = 0; rank < kWorldRanks; ++rank) {
    const std::string text = to_text(CollectiveCall{.rank = rank, .size = kWorldRanks});
    const double addend = rank == 0 ? 1.0 : 1.0 / 256;
    candidate.add(rank, {"s0/m0/output/a/0", wavy(4)})
        .add(rank, {"s0/collective_input/tp-0.3/0", {addend}, ElementType::kBF16})
        .add(rank, {"s0/collective_input/tp-0.3/1", {text.begin(), text.end()}, ElementType::kU8})
        .add(rank, {"s0/collective_output/tp-0.3/0", {1.0}, ElementType::kBF16});
  }
  DiffOptions options;
  options.allowances = allowances;
  return diff(
      TraceBuilder(folder / "reference", "reference").add(0, {"s0/m0/output/a/0", wavy(4)}).write(),
      candidate.write(),
      options);
}

// A block that chooses experts unseen; in the forced passes, one of its rows went to other experts.
Report judged_hidden_choices(const Allowances& allowances) {
  const std::string id = "s0/m0/output/block/0";
  const TemporaryDirectory folder;
  const auto side = [&](const std::string& name, double choice, double rounding) {
    Numbers values = off(wavy(64), rounding, 1.0);
    values.front() += choice;
    TraceBuilder builder(folder / name, name);
    builder.manifest.roles["hidden_choices"] = "block block.*";
    return builder.add(0, {id, values, ElementType::kF32}).write();
  };
  const Trace reference = side("reference", 0.0, 0.0);
  testing::write_noise_passes(folder / "reference", {testing::noise_row(id, 1.0, 1.0)});
  const ForcedTraces forced{side("wide", 0.0, 0.0), side("native", 0.0, 1e-7)};
  DiffOptions options;
  options.forced = &forced;
  options.allowances = allowances;
  return diff(reference, side("candidate", 0.5, 1e-7), options);
}

using Judge = std::function<Report(const Allowances&)>;

std::vector<Judge> judges() {
  std::vector<Judge> result;
  for (const World& world : {World{},
                             World{.axis = "cp"},
                             World{.precision = "f32"},
                             World{.precision = "f32", .rounds_operands = true},
                             World{.precision = "fp8", .has_scales = true},
                             World{.precision = "fp8", .multiple = 3.0, .has_scales = true},
                             World{.noise = 0, .forced = false, .golden = false},
                             World{.precision = "fp8", .noise = 0, .forced = false}}) {
    const auto run = std::make_shared<WorldRun>(world);
    result.emplace_back([run](const Allowances& allowances) { return run->judged(allowances); });
  }
  const auto addends = [&](std::int64_t width, double native, bool is_known) {
    result.emplace_back([=](const Allowances& allowances) {
      return judged_addends(width, native, is_known, allowances);
    });
  };
  addends(128, 0.02, true);
  addends(128, kRelativeRounding, true);
  addends(8, 0.05, true);
  addends(64, kRelativeRounding, false);
  result.emplace_back(judged_choices);
  result.emplace_back(judged_hidden_choices);
  result.emplace_back(judged_collective);
  result.emplace_back(judged_repetition);
  result.emplace_back(judged_sums);
  result.emplace_back(judged_scales);
  result.emplace_back(judged_untouched);
  return result;
}

// A tensor of which T2 says that it is `share` times as far off as its bound allows.
TensorVerdict far_off(double share, bool operators_hold) {
  Check operators;
  operators.question = Question::kOperator;
  operators.bound = 2.0;
  operators.holds = operators_hold;
  operators.terms = {{Term::kUnlike, 0.0}};
  Check whole;
  whole.question = Question::kWhole;
  whole.origin = BoundOrigin::kNoise;
  whole.value = share;
  whole.bound = 1.0;
  whole.holds = false;
  TensorVerdict tensor;
  tensor.comparison.emplace().error = share;
  tensor.add(operators);
  tensor.add(whole);
  return tensor;
}

// A tensor of which one number overflows on one side alone, `share` of its bound away from it.
TensorVerdict overflown(double share) {
  TensorVerdict tensor = far_off(share, true);
  Check finite = failed(Question::kFinite, "");
  finite.terms = {{Term::kError, share}};
  tensor.add(finite);
  return tensor;
}

// Roundings that have added up, and, behind a tensor that is wrong, an error of any size.
bool changes_what_is_inherited(const Allowances& allowances) {
  const std::vector<TensorVerdict> near_overflow = {overflown(1.5)};
  if (!inherited(near_overflow, {}, allowances)[0]) {
    return true;
  }
  const std::vector<TensorVerdict> tensors = {
      far_off(1.5, true), far_off(50.0, false), far_off(50.0, true)};
  const Excuses excuses = inherited(tensors, {}, allowances);
  return !excuses[0] || !excuses[2];
}

// A row that changes nothing is dead.
TEST(Ledger, EveryRowChangesABoundOrAVerdict) {
  std::vector<std::string> dead;
  std::vector<std::pair<Judge, Report>> runs;
  for (const Judge& judge : judges()) {
    runs.emplace_back(judge, judge({}));
  }
  EXPECT_FALSE(changes_what_is_inherited({}));
  for (const LedgerRow& row : ledger()) {
    Allowances allowances;
    allowances.remove(row.allowance);
    bool acts = changes_what_is_inherited(allowances);
    for (std::size_t i = 0; i < runs.size() && !acts; ++i) {
      acts = differ(runs[i].second, runs[i].first(allowances));
    }
    if (!acts) {
      dead.emplace_back(row.name);
    }
  }
  EXPECT_THAT(dead, IsEmpty());
}

TEST(Ledger, AReportNamesTheRowsThatWereSwitchedOff) {
  Allowances allowances;
  allowances.remove(Allowance::kOrderOfSums);
  EXPECT_THAT(judged_sums(allowances).remarks,
              ElementsAre(StartsWith(
                  "judged as if the ledger of limits had no row `order-of-sums`: A collective's")));
  EXPECT_THAT(judged_sums({}).remarks, IsEmpty());
}

}  // namespace
}  // namespace ttrace
