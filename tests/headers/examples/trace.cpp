#include "examples/trace.h"

#include <ttrace/trace.h>

#include <cstdio>

void example_of_trace() {
#include "trace.inc"
}
