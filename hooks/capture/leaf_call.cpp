#include "hooks/capture/leaf_call.h"

#include <algorithm>

namespace ttrace {

bool continues_call(const LeafCall& pending, const LeafCall& next, bool takes_result) {
  if (pending.module != next.module || pending.microbatch != next.microbatch ||
      pending.recompute != next.recompute) {
    return false;
  }
  const bool uses_again = std::find_first_of(next.parameters.begin(),
                                             next.parameters.end(),
                                             pending.parameters.begin(),
                                             pending.parameters.end()) != next.parameters.end();
  return takes_result && !uses_again;
}

}  // namespace ttrace
