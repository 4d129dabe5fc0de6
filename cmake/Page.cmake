# Makes page_parts.cpp of the files of analysis/reports/page and of Chart.js (version 3 or 4), which a report's page has in it.

# A literal of a compiler may be short, so that the text comes in pieces.
function(ttrace_page_part result name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" escaped "${hex}")
  string(LENGTH "${escaped}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${escaped}" ${at} 8000 piece)
    string(APPEND pieces "\n    \"${piece}\"")
    math(EXPR at "${at} + 8000")
  endwhile()
  math(EXPR bytes "${length} / 4")
  set(${result} "const std::string_view ${name}(${pieces},\n    ${bytes});\n" PARENT_SCOPE)
endfunction()

set(folder ${CMAKE_SOURCE_DIR}/analysis/reports/page)
ttrace_page_part(page kPage ${folder}/page.html)
ttrace_page_part(style kPageStyle ${folder}/page.css)
ttrace_page_part(drawings kPageDrawings ${folder}/drawings.js)
ttrace_page_part(script kPageScript ${folder}/page.js)
ttrace_page_part(charts kPageCharts ${TTRACE_CHART_JS})
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/page_parts.cpp @ONLY CONTENT
  "#include \"analysis/reports/page_parts.h\"\n\nnamespace ttrace {\n\n@page@\n@style@\n@drawings@\n@script@\n@charts@\n}  // namespace ttrace\n")
