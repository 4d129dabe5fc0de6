// The file man/skill.md, as it was when the program was built: analysis/cli/CMakeLists.txt.
//
// Thread-safety: a constant.
#pragma once

#include <string_view>

namespace ttrace::cli {

extern const std::string_view kSkill;

}  // namespace ttrace::cli
