// The files of the folder `page` and the library of charts, as they were when the program was
// built: cmake/Page.cmake.
//
// Thread-safety: constants.
#pragma once

#include <string_view>

namespace ttrace {

extern const std::string_view kPage;  // lines @TTRACE_PAGE_...@ stand for the other parts
extern const std::string_view kPageStyle;
extern const std::string_view kPageDrawings;  // charts of this page
extern const std::string_view kPageScript;
extern const std::string_view kPageCharts;  // Chart.js

}  // namespace ttrace
