#include <ttrace/error.h>
#include <ttrace/trace.h>

#include <cstdio>

void example_of_error();

void example_of_error() {
#include "error.inc"
}
