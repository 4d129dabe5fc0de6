#include "trace/merge/merge_finding.h"

#include <ttrace/error.h>

namespace ttrace {

std::string_view name_of(MergeDefect defect) {
  switch (defect) {
    case MergeDefect::kShapesContradict:
      return "shapes_contradict";
    case MergeDefect::kGap:
      return "gap";
    case MergeDefect::kOverlap:
      return "overlap";
    case MergeDefect::kReplicasDisagree:
      return "replicas_disagree";
    case MergeDefect::kAddendsMissing:
      return "addends_missing";
  }
  TTRACE_THROW(InternalError, "merge defect ", static_cast<int>(defect), " has no name");
}

}  // namespace ttrace
