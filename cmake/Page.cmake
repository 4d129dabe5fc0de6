# Makes page_parts.cpp of the files of analysis/reports/page and of Chart.js (version 3 or 4), which a report's page has in it.

include(Embed)

set(folder ${CMAKE_SOURCE_DIR}/analysis/reports/page)
ttrace_embedded(page kPage ${folder}/page.html)
ttrace_embedded(style kPageStyle ${folder}/page.css)
ttrace_embedded(drawings kPageDrawings ${folder}/drawings.js)
ttrace_embedded(script kPageScript ${folder}/page.js)
ttrace_embedded(charts kPageCharts ${TTRACE_CHART_JS})
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/page_parts.cpp @ONLY CONTENT
  "#include \"analysis/reports/page_parts.h\"\n\nnamespace ttrace {\n\n@page@\n@style@\n@drawings@\n@script@\n@charts@\n}  // namespace ttrace\n")
