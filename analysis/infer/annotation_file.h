// Inferred placements as the file that Annotations::load() reads.
//
// Thread-safety: free function without shared state.
#pragma once

#include "analysis/infer/infer.h"

#include <string>
#include <vector>

namespace ttrace {

struct AnnotationFile {
  std::string text;
  // One sentence about each thing that the grammar cannot express.
  std::vector<std::string> warnings;
};

// One entry for every pattern of paths, with what most of its paths have; paths that have something
// else come first, with an entry of their own. `origin` stands in the head of the file.
[[nodiscard]] AnnotationFile annotation_file(const Inference& inference, const std::string& origin);

}  // namespace ttrace
