#include "analysis/findings/zoom_report.h"

#include <ttrace/error.h>

namespace ttrace {

std::string_view name_of(OperatorFault fault) {
  switch (fault) {
    case OperatorFault::kResult:
      return "result";
    case OperatorFault::kOnlyInCandidate:
      return "only_in_candidate";
    case OperatorFault::kOnlyInReference:
      return "only_in_reference";
    case OperatorFault::kCommunication:
      return "communication";
  }
  TTRACE_THROW(InternalError, "fault ", static_cast<int>(fault), " has no name");
}

}  // namespace ttrace
