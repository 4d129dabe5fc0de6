# Makes ZIP: a folder like an unpacked LibTorch zip, with links to the files of the torch package TORCH;
# and ZIP-1.13, which claims to be of that version.
foreach(folder ${ZIP} ${ZIP}-1.13)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${TORCH}/lib ${folder}/lib SYMBOLIC)
endforeach()
file(CREATE_LINK ${TORCH}/include ${ZIP}/include SYMBOLIC)
file(WRITE ${ZIP}-1.13/include/ATen/ATen.h "")
file(WRITE ${ZIP}-1.13/include/torch/csrc/api/include/torch/version.h
  "#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n")
