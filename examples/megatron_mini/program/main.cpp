// megatron_mini: a Megatron-style trainer to be checked by TTrace. See ../README.md.
#include "program.h"

int main(int argc, char** argv) {
  return megatron_mini::run_program(argc, argv);
}
