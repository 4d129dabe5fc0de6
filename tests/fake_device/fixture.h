// What tests of the fake device share.
#pragma once

#include "fake_device/fake_device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstring>

namespace ttrace::testing::fake {

class FakeDeviceTest : public ::testing::Test {
 protected:
  FakeDeviceTest() {
    install();
    reset();
    // The CPU's fused attention rounds in another order than the formula.
    at::globalContext().setSDPUseFlash(false);
    at::manual_seed(7);
  }
  ~FakeDeviceTest() override {
    reset();
    at::globalContext().setSDPUseFlash(true);
  }
};

inline ::testing::AssertionResult same_bits(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor a = left.detach().to(at::kCPU).contiguous();
  const at::Tensor b = right.detach().to(at::kCPU).contiguous();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return ::testing::AssertionFailure()
           << a.toString() << a.sizes() << " is not " << b.toString() << b.sizes();
  }
  if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) != 0) {
    return ::testing::AssertionFailure() << a << "\nis not\n" << b;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ttrace::testing::fake
