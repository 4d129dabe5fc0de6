#include <ttrace/layout.h>

ttrace::Layout example_of_layout();

ttrace::Layout example_of_layout() {
#include "layout.inc"
  return layout;
}
