// megatron_mini that also knows --device fake: host memory behind streams that run late and in any
// legal order.
#include "fake_device/fake_device.h"
#include "program/program.h"

int main(int argc, char** argv) {
  ttrace::testing::fake::install();
  ttrace::testing::fake::reset();
  return megatron_mini::run_program(argc, argv);
}
