# ttrace_embedded(result name file): defines a std::string_view `name` that holds the bytes of `file`, as text of C++ in `result`.

# A literal of a compiler may be short, so that the text comes in pieces.
function(ttrace_embedded result name file)
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
