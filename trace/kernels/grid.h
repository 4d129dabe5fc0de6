// How the work of a kernel is shared out, on a GPU and on the host.
//
// A kernel is a function of a Grid or of a Team. No result depends on their sizes, so the host runs
// the same functions with any of them: one worker, or as many as a GPU would have, one after
// another.
#pragma once

#include "trace/base/host_device.h"

#include <cstdint>
#include <cstring>

namespace ttrace {

// One of `stride` workers: it takes the units of work `first`, `first + stride`, and so on.
struct Grid {
  std::int64_t first;
  std::int64_t stride;
};

// The host's stand-in for the threads of one block that share memory. each() runs the body once for
// every thread and returns when all are done.
template <int kThreads>
struct HostTeam {
  template <class Body>
  void each(const Body& body) const {
    for (int thread = 0; thread < kThreads; ++thread) {
      body(thread);
    }
  }
};

inline constexpr int kPackBytes = 16;  // what a thread loads at once

// Whether packs from this address on can be loaded at once.
TTRACE_KERNEL bool starts_pack(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kPackBytes == 0;
}

// Copies `kCount` elements. `at_once`: the source starts a pack, and the elements fill packs. On
// the host the source may lie at any address, on a GPU at multiples of the element's size.
template <int kCount, class Element>
TTRACE_KERNEL void load_elements(const void* source, bool at_once, Element* target) {
#if defined(__CUDA_ARCH__)
  if (at_once) {
    constexpr int kPacks = kCount * static_cast<int>(sizeof(Element)) / kPackBytes;
    uint4 packs[kPacks == 0 ? 1 : kPacks];
    for (int i = 0; i < kPacks; ++i) {
      packs[i] = static_cast<const uint4*>(source)[i];
    }
    memcpy(target, packs, kPacks * kPackBytes);
    return;
  }
  for (int i = 0; i < kCount; ++i) {
    target[i] = static_cast<const Element*>(source)[i];
  }
#else
  static_cast<void>(at_once);
  std::memcpy(target, source, kCount * sizeof(Element));
#endif
}

template <int kCount, class Element>
TTRACE_KERNEL void store_elements(const Element* source, bool at_once, void* target) {
#if defined(__CUDA_ARCH__)
  if (at_once) {
    constexpr int kPacks = kCount * static_cast<int>(sizeof(Element)) / kPackBytes;
    uint4 packs[kPacks == 0 ? 1 : kPacks];
    memcpy(packs, source, kPacks * kPackBytes);
    for (int i = 0; i < kPacks; ++i) {
      static_cast<uint4*>(target)[i] = packs[i];
    }
    return;
  }
  for (int i = 0; i < kCount; ++i) {
    static_cast<Element*>(target)[i] = source[i];
  }
#else
  static_cast<void>(at_once);
  std::memcpy(target, source, kCount * sizeof(Element));
#endif
}

// One element, or a part of one, at a multiple of its size; on the host at any address.
template <class Element>
TTRACE_KERNEL Element load_element(const void* data, std::int64_t index) {
  Element element;
  load_elements<1>(static_cast<const unsigned char*>(data) + index * std::int64_t{sizeof(Element)},
                   false,
                   &element);
  return element;
}

}  // namespace ttrace
