#include "analysis/bounds/limits.h"
#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kOutput;
using ::testing::Not;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;

class Compatibility : public ::testing::Test {
 protected:
  Compatibility() {
    reference_.add(0, {kOutput, {1, 2, 3}});
    candidate_.add_everywhere({kOutput, {1, 2, 3}});
  }

  // Writes both traces anew.
  Report compare() {
    for (const char* side : {"reference", "candidate"}) {
      std::filesystem::remove_all(directory_ / side);
    }
    return diff(reference_.write(), candidate_.write());
  }

  // The message of the UsageError that the comparison ends with.
  std::string refusal() {
    try {
      compare();
    } catch (const UsageError& error) {
      return error.message();
    }
    return "not refused";
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

TEST_F(Compatibility, RefusesDifferentModelsNamingKeyAndBothValues) {
  candidate_.manifest.model["hidden"] = "256";
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("model key `hidden`"),
                    HasSubstr("`128` in the reference"),
                    HasSubstr("`256` in the candidate")));
}

// A second implementation of a model could not be compared without a line of code (--auto): the
// name of its class is another one.
TEST_F(Compatibility, ComparesModelsOfTwoClassesAndSaysSo) {
  reference_.manifest.model["class"] = "LlamaForCausalLM";
  candidate_.manifest.model["class"] = "OwnLlama";
  EXPECT_THAT(compare().remarks,
              Contains("the model's class is `LlamaForCausalLM` in the reference and `OwnLlama` in "
                       "the candidate"));
}

TEST_F(Compatibility, NamesAKeyThatOneSideLacks) {
  candidate_.manifest.data["shuffle"] = "yes";
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("data key `shuffle`"),
                    HasSubstr("absent in the reference"),
                    HasSubstr("`yes` in the candidate")));
}

// Files of other tools say nothing of the model, so that a dump could not be compared with a run.
TEST_F(Compatibility, ComparesAnImportedTraceWithARunAndSaysWhatItDidNotCompare) {
  candidate_.manifest.pass = kImportedPass;
  candidate_.manifest.model.clear();
  candidate_.manifest.data.clear();
  EXPECT_THAT(compare().remarks, Contains(HasSubstr("do not say which model and data")));
}

TEST_F(Compatibility, RemarksNoSwappedSidesWhereTheReferenceWasImported) {
  reference_.manifest.pass = candidate_.manifest.pass = kImportedPass;
  EXPECT_THAT(compare().remarks, Not(Contains(HasSubstr("swapped"))));
}

TEST_F(Compatibility, RefusesDifferentStepsNamingBoth) {
  candidate_.add(0, {"s1/m0/output/fc/0", {1}});
  candidate_.add(1, {"s1/m0/output/fc/0", {1}});
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("reference holds steps 0, but the candidate holds 0, 1"),
                    HasSubstr("TTRACE_STEPS")));
}

// What a machine did to F32 numbers.
Section machine(const std::string& device, const std::string& products) {
  return {{"device", device}, {"f32_products", products}, {"threads", "2"}};
}

TEST_F(Compatibility, RefusesF32RunsOfWhichOneRoundedItsOperands) {
  reference_.manifest.numerics = machine("cuda", "f32");
  candidate_.manifest.numerics = machine("cuda", "tf32");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("the reference multiplied in f32 and the candidate in tf32"),
                    HasSubstr("torch.backends.cuda.matmul.allow_tf32 = False"),
                    HasSubstr("in the candidate")));
  reference_.manifest.numerics = machine("cpu", "bf16");
  candidate_.manifest.numerics = machine("cpu", "f32");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("the reference multiplied in bf16 and the candidate in f32"),
                    HasSubstr("torch.set_float32_matmul_precision(\"highest\") in the reference")));
  for (TraceBuilder* side : {&reference_, &candidate_}) {
    side->manifest.precision = "bf16";  // whose products have coarser operands anyway
  }
  EXPECT_EQ(refusal(), "not refused");
}

TEST_F(Compatibility, TracesThatDoNotSayHowTheyMultipliedAreCompared) {
  candidate_.manifest.numerics = machine("cuda", "tf32");
  EXPECT_EQ(refusal(), "not refused");
  EXPECT_THAT(compare().remarks, ::testing::IsEmpty());
}

TEST_F(Compatibility, F32RunsThatMultiplyInTf32AreJudgedByItsRounding) {
  const auto class_default = [this](const std::string& products) {
    reference_.manifest.numerics = machine("cuda", products);
    candidate_.manifest.numerics = machine("cuda", products);
    const TensorVerdict tensor = compare().tensors.front();
    return tensor.find(Question::kWhole)->detectable /
           default_factor(tensor.tensor_class, tensor.id.step);
  };
  EXPECT_DOUBLE_EQ(class_default("tf32"),
                   unit_of(ElementType::kF16));  // whose mantissa is TF32's
  EXPECT_THAT(compare().remarks,
              ElementsAre(HasSubstr("both programs compute in f32 and multiply in tf32")));
  EXPECT_DOUBLE_EQ(class_default("bf16"), unit_of(ElementType::kBF16));
  EXPECT_DOUBLE_EQ(class_default("f32"), unit_of(ElementType::kF32));
  EXPECT_THAT(compare().remarks, ::testing::IsEmpty());
}

TEST_F(Compatibility, RemarksSettingsThatDifferAndMatter) {
  reference_.manifest.numerics = machine("cpu", "f32");
  reference_.manifest.numerics["flush_denormal"] = "off";
  candidate_.manifest.numerics = machine("cpu", "f32");
  candidate_.manifest.numerics["flush_denormal"] = "on";
  candidate_.manifest.numerics["threads"] = "1";
  candidate_.manifest.numerics["cuda_matmul"] = "tf32";
  EXPECT_THAT(compare().remarks,
              ElementsAre("the reference ran with flush_denormal off, the candidate with "
                          "flush_denormal on"));
  candidate_.manifest.numerics["device"] = "cuda";
  EXPECT_THAT(compare().remarks,
              ElementsAre("the reference ran with cuda_matmul unset, the candidate with "
                          "cuda_matmul tf32",
                          "the reference ran with device cpu, the candidate with device cuda",
                          HasSubstr("flush_denormal")));
}

TEST_F(Compatibility, RefusesTracesWithoutACommonTensor) {
  TraceBuilder other(directory_ / "other", "candidate");
  other.add(0, {"s0/m0/output/mlp/0", {1}});
  try {
    static_cast<void>(diff(reference_.write(), other.write()));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("no tensor is in both"),
                      HasSubstr(kOutput),
                      HasSubstr("s0/m0/output/mlp/0")));
  }
}

TEST_F(Compatibility, RefusesAPrecisionItDoesNotKnow) {
  reference_.manifest.precision = "fp4";
  EXPECT_THAT(refusal(), HasSubstr("precision `fp4`"));
}

TEST_F(Compatibility, RemarksOnPrecisionVersionsAndSwappedSidesButCompares) {
  reference_.manifest.pass = "candidate";
  reference_.manifest.precision = "bf16";
  reference_.manifest.versions["torch"] = "2.13.0";
  candidate_.manifest.versions["torch"] = "2.11.0";
  reference_.manifest.versions["the_reference_program"] =
      "1";  // no other version of the same thing
  const Report report = compare();
  EXPECT_FALSE(report.diverged());
  EXPECT_THAT(report.remarks,
              ElementsAre(HasSubstr("swapped"),
                          HasSubstr("bf16 in the reference and f32 in the candidate"),
                          HasSubstr("torch is `2.13.0` in the reference and `2.11.0`")));
}

TEST_F(Compatibility, RefusesAReferenceThatContradictsItself) {
  TraceBuilder broken(directory_ / "broken", "reference", 2);
  broken.add(0, {kOutput, {1, 2, 3}});
  broken.add(1, {kOutput, {1, 2, 4}});
  try {
    static_cast<void>(diff(broken.write(), candidate_.write()));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("the reference contradicts itself"), HasSubstr(kOutput)));
  }
}

}  // namespace
}  // namespace ttrace
