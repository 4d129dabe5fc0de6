#include "trace/base/version.h"

namespace ttrace {

const char* own_version() {
  return TTRACE_VERSION;
}

}  // namespace ttrace
