// Collectives between real ranks, for every element type the trainer sends.
#include "collectives.h"

#include "ranks.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace {

using megatron_mini::all_gather;
using megatron_mini::all_reduce;
using megatron_mini::pass_on;
using megatron_mini::reduce_scatter;
using megatron_mini::Reduction;
using megatron_mini::testing::world;

const std::vector<at::ScalarType> kAllTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kLong};

// 0, 1, ..., count-1 plus 10 times `rank`; small integers are exact in every type.
at::Tensor numbers(std::int64_t count, int rank, at::ScalarType type) {
  return (at::arange(count) + 10 * rank).to(type);
}

TEST(Collectives, SumAddsTheValuesOfAllRanks) {
  const int size = world().size;
  for (const auto type : kAllTypes) {
    const at::Tensor expected = (at::arange(5) * size + 10 * size * (size - 1) / 2).to(type);
    const at::Tensor sum = all_reduce(numbers(5, world().rank, type), world());
    EXPECT_EQ(sum.scalar_type(), type);
    EXPECT_TRUE(sum.equal(expected)) << sum;
  }
}

TEST(Collectives, MaximumTakesTheLargestRank) {
  for (const auto type : {at::kDouble, at::kFloat, at::kLong}) {
    const at::Tensor largest = all_reduce(numbers(5, world().rank, type), world(), Reduction::kMax);
    EXPECT_TRUE(largest.equal(numbers(5, world().size - 1, type))) << largest;
  }
}

TEST(Collectives, AllGatherJoinsRowsInRankOrder) {
  for (const auto type : kAllTypes) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < world().size; ++rank) {
      parts.push_back(numbers(6, rank, type).view({2, 3}));
    }
    const at::Tensor joined = all_gather(numbers(6, world().rank, type).view({2, 3}), world());
    EXPECT_TRUE(joined.equal(at::cat(parts))) << joined;
  }
}

TEST(Collectives, ReduceScatterKeepsTheSumOfOwnRows) {
  const int size = world().size;
  for (const auto type : kAllTypes) {
    const at::Tensor mine = numbers(3 * size, world().rank, type).view({size, 3});
    const at::Tensor sum =
        (at::arange(3 * size) * size + 10 * size * (size - 1) / 2).to(type).view({size, 3});
    const at::Tensor part = reduce_scatter(mine, world());
    EXPECT_TRUE(part.equal(sum.narrow(0, world().rank, 1))) << part;
  }
}

TEST(Collectives, BroadcastCopiesTheRoot) {
  for (const auto type : kAllTypes) {
    const at::Tensor tensor = numbers(4, world().rank, type);
    megatron_mini::broadcast(tensor, world(), 1);
    EXPECT_TRUE(tensor.equal(numbers(4, 1, type))) << tensor;
  }
}

TEST(Collectives, PassOnReturnsThePreviousRanksTensor) {
  const int previous = (world().rank + world().size - 1) % world().size;
  for (const auto type : kAllTypes) {
    const at::Tensor mine = numbers(6, world().rank, type).view({2, 3});
    EXPECT_TRUE(pass_on(mine, world()).equal(numbers(6, previous, type).view({2, 3})));
    EXPECT_TRUE(pass_on(mine.t(), world()).equal(numbers(6, previous, type).view({2, 3}).t()));
  }
}

// A message of 8 MiB is larger than any buffer of MPI: ranks that sent before they received would
// all wait for ever.
TEST(Collectives, PassOnOfALargeTensorEnds) {
  const at::Tensor received = pass_on(at::full({1 << 20}, world().rank, at::kDouble), world());
  EXPECT_EQ(received[0].item<double>(), (world().rank + world().size - 1) % world().size);
}

// 256 + 1 is a tie between 256 and 258 and goes to the even 256. One sum in f32 would be 257 or 259
// and end at 256 or 260; 2^-8 steps of bf16 leave 256 (one after the other) or 258 (in pairs).
TEST(Collectives, Bf16SumRoundsAfterEveryAddition) {
  const at::Tensor mine = at::full({3}, world().rank == 0 ? 256.0 : 1.0, at::kBFloat16);
  const float sum = all_reduce(mine, world())[0].item<float>();
  EXPECT_TRUE(sum == 256.0F || (world().size == 4 && sum == 258.0F)) << sum;
}

TEST(Collectives, Bf16RoundsTiesToEven) {
  // 258 + 1 lies between 258 (odd significand) and 260 (even).
  const at::Tensor mine = at::full({3}, world().rank == 0 ? 258.0 : 1.0, at::kBFloat16);
  const at::Tensor zero = at::zeros({3}, at::kBFloat16);
  const float sum = all_reduce(world().rank < 2 ? mine : zero, world())[0].item<float>();
  EXPECT_EQ(sum, 260.0F);
}

TEST(Collectives, AllRanksGetTheSameBits) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor mine = (at::arange(1000).to(at::kDouble) * 0.37 + world().rank).sin().to(type);
    const at::Tensor sum = all_reduce(mine, world());
    const at::Tensor all = all_gather(sum.unsqueeze(0), world());
    for (int rank = 0; rank < world().size; ++rank) {
      EXPECT_EQ(std::memcmp(all[rank].const_data_ptr(), sum.const_data_ptr(), sum.nbytes()), 0);
    }
  }
}

TEST(Collectives, InputStaysAsItIs) {
  const at::Tensor mine = numbers(5, world().rank, at::kFloat);
  const at::Tensor sum = all_reduce(mine, world());
  EXPECT_FALSE(sum.equal(mine));
  EXPECT_TRUE(mine.equal(numbers(5, world().rank, at::kFloat)));
}

TEST(Collectives, StridedInputGivesTheSumInsteadOfTheInput) {
  const int size = world().size;
  const at::Tensor strided = numbers(6, world().rank, at::kFloat).view({2, 3}).t();
  const at::Tensor contiguous = strided.contiguous();
  EXPECT_TRUE(all_reduce(strided, world()).equal(all_reduce(contiguous, world())));
  EXPECT_TRUE(all_gather(strided, world()).equal(all_gather(contiguous, world())));
  const at::Tensor wide = numbers(4 * size, world().rank, at::kFloat).view({2, 2 * size}).t();
  EXPECT_TRUE(reduce_scatter(wide, world()).equal(reduce_scatter(wide.contiguous(), world())));
}

TEST(Collectives, InPlaceSumRefusesStridedTensor) {
  const at::Tensor strided = at::ones({2, 3}).t();
  EXPECT_THROW(megatron_mini::sum_in_place(strided, world()), c10::Error);
}

TEST(Collectives, UnknownElementTypeIsRefused) {
  EXPECT_THROW(all_reduce(at::ones({2}, at::kHalf), world()), c10::Error);
  EXPECT_THROW(all_reduce(at::ones({2}, at::kBFloat16), world(), Reduction::kMax), c10::Error);
}

TEST(Collectives, ReduceScatterRefusesRowsThatDoNotDivide) {
  EXPECT_THROW(reduce_scatter(at::ones({world().size + 1, 2}), world()), c10::Error);
}

TEST(Collectives, SplitMakesGroupsOfEqualColour) {
  const int parity = world().rank % 2;
  const auto group = megatron_mini::testing::runtime().split("parity", parity);
  EXPECT_EQ(group.size, world().size / 2);
  EXPECT_EQ(group.rank, world().rank / 2);
  std::int64_t expected = 0;
  for (int rank = parity; rank < world().size; rank += 2) {
    expected += rank;
  }
  const at::Tensor mine = at::full({1}, world().rank, at::kLong);
  EXPECT_EQ(all_reduce(mine, group).item<std::int64_t>(), expected);
  EXPECT_EQ(megatron_mini::group_named("parity").size, group.size);
}

TEST(Collectives, FirstRankWithFindsTheLowest) {
  EXPECT_EQ(megatron_mini::first_rank_with(world().rank >= 1, world()), 1);
  EXPECT_EQ(megatron_mini::first_rank_with(true, world()), 0);
  EXPECT_EQ(megatron_mini::first_rank_with(false, world()), std::nullopt);
}

TEST(Collectives, NobodyPassesTheBarrierBeforeAllHaveEntered) {
  // A name that all ranks of this job share and no other job has.
  const at::Tensor token = at::full({1}, static_cast<std::int64_t>(getpid()), at::kLong);
  megatron_mini::broadcast(token, world(), 0);
  const auto folder = std::filesystem::temp_directory_path();
  const auto file = [&](int rank) {
    return folder / ("ttrace-barrier-" + std::to_string(token.item<std::int64_t>()) + "-" +
                     std::to_string(rank));
  };
  std::ofstream(file(world().rank)) << "entered";
  megatron_mini::barrier(world());
  for (int rank = 0; rank < world().size; ++rank) {
    EXPECT_TRUE(std::filesystem::exists(file(rank)));
  }
  megatron_mini::barrier(world());
  std::filesystem::remove(file(world().rank));
}

std::set<std::string>& seen_operators() {
  static std::set<std::string> names;
  return names;
}

std::unique_ptr<at::ObserverContext> note_operator(const at::RecordFunction& record) {
  seen_operators().insert(record.name());
  return nullptr;
}

TEST(Collectives, ObserversSeeTheOperators) {
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&note_operator));
  const at::Tensor tensor = at::ones({world().size});
  std::ignore = all_reduce(tensor, world());
  std::ignore = all_gather(tensor, world());
  std::ignore = reduce_scatter(tensor, world());
  megatron_mini::broadcast(tensor, world(), 0);
  megatron_mini::barrier(world());
  std::ignore = pass_on(tensor, world());
  at::removeCallback(handle);
  for (const char* name : {"c10d::allreduce_",
                           "c10d::_allgather_base_",
                           "c10d::_reduce_scatter_base_",
                           "c10d::broadcast_",
                           "c10d::barrier",
                           "c10d::send",
                           "c10d::recv_"}) {
    EXPECT_TRUE(seen_operators().contains(name)) << name;
  }
}

}  // namespace
