#include <ttrace/annotations.h>

// Declared here so that the compiler does not take them for forgotten.
ttrace::Annotations example_of_annotations();

ttrace::Annotations example_of_annotations() {
#include "annotations.inc"
  return annotations;
}
