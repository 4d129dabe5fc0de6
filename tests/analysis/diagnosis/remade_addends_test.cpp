// A main gradient of whose micro-batches no gradients were recorded.
#include "analysis/diagnosis/diagnosis_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::ElementsAre;

constexpr std::size_t kRows = 6;  // of 2 samples
constexpr std::size_t kWidth = 8;

// Symptom: a zero-bubble schedule left one micro-batch out, and FSDP2's accumulation all but the
// last, and the report named no micro-batch ("localised", or no cause at all): FSDP2 keeps the
// gradients of single micro-batches to itself.
class RemadeAddends : public DiagnosisTest {
 protected:
  static std::string of(std::size_t microbatch, const std::string& rest) {
    return "s0/m" + std::to_string(microbatch) + "/" + rest;
  }
  static Matrix gradient(std::size_t microbatch) {
    return random_values(kRows * kWidth, 10 + static_cast<std::uint32_t>(microbatch));
  }
  static Matrix values(std::size_t microbatch) {
    return random_values(kRows * kWidth, 20 + static_cast<std::uint32_t>(microbatch));
  }
  void add_gradients() {
    for (std::size_t m = 0; m < 3; ++m) {
      add_both(of(m, "grad_output/fc/0"), gradient(m), {2, 3, kWidth});
    }
  }
  // With micro-batch 1 left out by the candidate.
  void expect_named(const std::vector<Matrix>& addends, const std::vector<std::int64_t>& shape) {
    const std::string id = "s0/main_grad/fc.weight/0";
    add_reference(id, sum(sum(addends[0], addends[1]), addends[2]), shape);
    add_candidate(id, sum(addends[0], addends[2]), shape);
    const Diagnosis found = diagnosis(id);
    EXPECT_EQ(found.signature, Signature::kMissingMicrobatch);
    EXPECT_THAT(found.named.microbatches, ElementsAre(1));
  }
};

TEST_F(RemadeAddends, OfANormAreItsOutputTimesTheGradientOverItsWeight) {
  const Matrix weight = random_values(kWidth, 1);
  add_both("s0/param/fc.weight/0", weight, {kWidth});
  add_gradients();
  std::vector<Matrix> addends;
  for (std::size_t m = 0; m < 3; ++m) {
    add_both(of(m, "output/fc/0"), values(m), {2, 3, kWidth});
    Matrix& addend = addends.emplace_back(kWidth);
    for (std::size_t i = 0; i < kRows * kWidth; ++i) {
      addend[i % kWidth] += gradient(m)[i] * values(m)[i] / weight[i % kWidth];
    }
  }
  expect_named(addends, {kWidth});
}

TEST_F(RemadeAddends, OfALinearAreGradientTimesInput) {
  add_gradients();
  std::vector<Matrix> addends;
  for (std::size_t m = 0; m < 3; ++m) {
    add_both(of(m, "input/fc/0"), values(m), {2, 3, kWidth});
    Matrix& addend = addends.emplace_back(kWidth * kWidth);
    for (std::size_t i = 0; i < kRows * kWidth * kWidth; ++i) {
      const std::size_t row = i / kWidth / kWidth;
      addend[i % (kWidth * kWidth)] +=
          gradient(m)[row * kWidth + i / kWidth % kWidth] * values(m)[row * kWidth + i % kWidth];
    }
  }
  expect_named(addends, {kWidth, kWidth});
}

TEST_F(RemadeAddends, OfAnEmbeddingAreGradientsInTheRowsOfTheirTokens) {
  constexpr std::size_t kTokens = 5;
  add_gradients();
  std::vector<Matrix> addends;
  for (std::size_t m = 0; m < 3; ++m) {
    Matrix tokens;
    Matrix& addend = addends.emplace_back(kTokens * kWidth);
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::size_t token = (3 * row + m) % kTokens;
      tokens.push_back(static_cast<double>(token));
      for (std::size_t i = 0; i < kWidth; ++i) {
        addend[token * kWidth + i] += gradient(m)[row * kWidth + i];
      }
    }
    const Tensor data{of(m, "data/tokens/0"), tokens, ElementType::kI64, {2, 3}};
    reference_.add(0, data);
    candidate_.add_everywhere(data);
  }
  expect_named(addends, {kTokens, kWidth});
}

}  // namespace
}  // namespace ttrace
