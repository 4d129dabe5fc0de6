#include "hooks/base/byte_buffers.h"

#include <gtest/gtest.h>

#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kSize = std::size_t{1} << 20;

TEST(ByteBuffers, MemoryGivenBackIsTheNextOfItsSize) {
  ByteBuffers buffers;
  std::vector<std::byte> first = buffers.take(kSize);
  ASSERT_EQ(first.size(), kSize);
  const std::byte* const memory = first.data();
  buffers.give_back(std::move(first));
  EXPECT_NE(buffers.take(kSize + 1).data(), memory);
  const std::vector<std::byte> next = buffers.take(kSize);
  EXPECT_EQ(next.data(), memory);
  EXPECT_NE(buffers.take(kSize).data(), memory) << "handed out twice";
}

TEST(ByteBuffers, NoMoreIsKeptThanTheWritersQueueHolds) {
  constexpr std::size_t kQueue = std::size_t{256} << 20;
  ByteBuffers buffers;
  buffers.give_back(std::vector<std::byte>(kQueue));
  EXPECT_EQ(buffers.kept(), kQueue);
  buffers.give_back(std::vector<std::byte>(kSize));
  EXPECT_EQ(buffers.kept(), kQueue);
  buffers.clear();
  EXPECT_EQ(buffers.kept(), 0U);
}

TEST(ByteBuffers, SmallTensorsAreLeftToTheAllocator) {
  ByteBuffers buffers;
  buffers.give_back(std::vector<std::byte>(64));
  EXPECT_EQ(buffers.kept(), 0U);
}

}  // namespace
}  // namespace ttrace
