// The program on a small stored candidate: two tensor-parallel ranks, one tensor each of several
// placements, and its one-device reference.
#pragma once

#include "analysis/trace_builder.h"
#include "cli_fixture.h"

#include <gmock/gmock.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

namespace ttrace::testing {

class TraceCliTest : public CliTest {
 protected:
  // Ranks 0 and 1 hold halves of a bf16 output, both a whole i64 tensor, addends of a gradient.
  void SetUp() override {
    Placement addend = whole(std::vector<std::int64_t>{2});
    addend.partial_count = 2;
    addend.partial_over = "tp";
    for (int rank = 0; rank < 2; ++rank) {
      const double first = 4.0 * rank;
      candidate_.add(rank, {"s0/m0/data/tokens/0", {3, 1, 2}, ElementType::kI64});
      candidate_.add(rank,
                     {"s0/m0/output/mlp.fc1/0",
                      {first + 1, first + 2, first + 3, first + 4},
                      ElementType::kBF16,
                      {4},
                      part(8, rank, 2)});
      addend.partial_index = rank;
      candidate_.add(rank,
                     {"s0/main_grad/mlp.fc1.bias/0", {0.5, 0.0}, ElementType::kF32, {2}, addend});
    }
    reference_.add(0, {"s0/m0/data/tokens/0", {3, 1, 2}, ElementType::kI64});
    reference_.add(0,
                   {"s0/m0/output/mlp.fc1/0", {1, 2, 3, 4, 5, 6, 7, 8}, ElementType::kBF16, {8}});
    reference_.add(0, {"s0/main_grad/mlp.fc1.bias/0", {1.0, 0.0}, ElementType::kF32});
  }

  void write() {
    static_cast<void>(reference_.write());
    static_cast<void>(candidate_.write());
  }

  // Flips one bit in the file at the place of `bytes`.
  void corrupt(const std::string& file, const std::string& bytes) const {
    std::string text = this->file(file);
    const std::size_t at = text.find(bytes);
    ASSERT_NE(at, std::string::npos);
    text[at] = static_cast<char>(text[at] ^ 1);
    std::ofstream(folder_ / file, std::ios::binary) << text;
  }

  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate", 2};
};

}  // namespace ttrace::testing
