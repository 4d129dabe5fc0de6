#include <ttrace/log.h>

void example_of_log();

void example_of_log() {
#include "log.inc"
}
