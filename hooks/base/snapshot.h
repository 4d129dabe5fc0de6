// A tensor's values at the moment when a hook saw them. They may still be on their way from a
// device: a caller that needs them waits only for these values.
//
// Thread-safety: values that one thread at a time uses; they may be handed to another thread.
#pragma once

#include "hooks/base/tensor_copy.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {

// Why there is no snapshot of a tensor while a stream records a graph: whatever we did then would
// become part of the graph or make its recording fail.
inline constexpr std::string_view kInGraph = "belongs to a graph that its stream records";

// Bytes that a device is still copying. Their end gives up the place where they arrive, whether
// somebody read them or not.
class ArrivingBytes {
 public:
  using Use = std::function<void(std::span<const std::byte>)>;

  ArrivingBytes() = default;
  virtual ~ArrivingBytes() = default;
  ArrivingBytes(const ArrivingBytes&) = delete;  // owns its place
  ArrivingBytes& operator=(const ArrivingBytes&) = delete;

  [[nodiscard]] virtual std::size_t size() const = 0;
  // Waits for these bytes and no others, then calls use(bytes).
  virtual void read(const Use& use) = 0;
};

class SnapshotBytes {
 public:
  SnapshotBytes() = default;
  SnapshotBytes(std::vector<std::byte> here) : here_(std::move(here)) {}  // implicit: plain bytes
  explicit SnapshotBytes(std::unique_ptr<ArrivingBytes> arriving)
      : arriving_(std::move(arriving)) {}

  [[nodiscard]] std::size_t size() const {
    return arriving_ == nullptr ? here_.size() : arriving_->size();
  }
  // Calls use(bytes) when the bytes are here, and gives their memory back.
  void hand_to(const ArrivingBytes::Use& use) &&;
  // Returns the bytes when they are here.
  [[nodiscard]] std::vector<std::byte> take() &&;

 private:
  std::vector<std::byte> here_;
  std::unique_ptr<ArrivingBytes> arriving_;  // null: the bytes are here
};

struct Snapshot {
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;
  SnapshotBytes bytes;  // row-major and contiguous; none where the shape is all that is needed
  // What the other ranks hold in place of it, if one process simulates several.
  std::vector<Snapshot> others = {};

  Snapshot(ElementType element_type, std::vector<std::int64_t> sizes, SnapshotBytes values = {})
      : type(element_type), shape(std::move(sizes)), bytes(std::move(values)) {}
  Snapshot(TensorCopy copy)  // implicit: values that are here
      : Snapshot(copy.type, std::move(copy.shape), std::move(copy.bytes)) {}

  // Waits for the values.
  [[nodiscard]] TensorCopy take() && { return {type, std::move(shape), std::move(bytes).take()}; }
};

}  // namespace ttrace
