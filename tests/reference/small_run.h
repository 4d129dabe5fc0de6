// A run small enough for finite differences: its configuration, its text, its random tensors.
#pragma once

#include "reference/config.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace ttrace::testing {

inline reference::Config small_config() {
  reference::Config config;
  config.model = {.layers = 2,
                  .hidden = 16,
                  .heads = 4,
                  .query_groups = 2,
                  .ffn = 24,
                  .vocabulary = 257,
                  .sequence = 8,
                  .activation = reference::Activation::kSwiglu,
                  .tied = false,
                  .rotary_base = 10000,
                  .norm_epsilon = 1e-5};
  config.data = {.file = "", .seed = 1, .micro_batch_size = 2, .micro_batches = 2};
  config.optimizer = {.learning_rate = 1e-2,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .epsilon = 1e-8,
                      .weight_decay = 0.1,
                      .clip = 1.0};
  config.precision = reference::Precision::kF64;
  return config;
}

// Byte i is (7 i + 3) mod 256.
inline void write_text(const std::string& file, int bytes = 1000) {
  std::ofstream out(file, std::ios::binary);
  for (int i = 0; i < bytes; ++i) {
    out.put(static_cast<char>((7 * i + 3) % 256));
  }
}

inline at::Tensor random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

}  // namespace ttrace::testing
