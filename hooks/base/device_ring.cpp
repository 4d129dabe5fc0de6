#include "hooks/base/device_ring.h"

#include "hooks/base/byte_buffers.h"
#include "hooks/base/capture_mode.h"

#include <ttrace/error.h>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace ttrace {
namespace {

// Enough for the elements of all types, and what devices like their copies to begin at.
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t position) {
  return (position + kAlignment - 1) / kAlignment * kAlignment;
}

// Cuts a tensor into parts of at most `limit` bytes, which follow each other in row-major order.
template <class Visit>
void for_each_piece(const at::Tensor& tensor, std::size_t limit, const Visit& visit) {
  if (tensor.nbytes() <= limit) {
    visit(tensor);
    return;
  }
  const std::int64_t rows = tensor.size(0);
  const std::size_t row = tensor.nbytes() / static_cast<std::size_t>(rows);
  if (row > limit) {
    for (std::int64_t index = 0; index < rows; ++index) {
      for_each_piece(tensor.select(0, index), limit, visit);
    }
    return;
  }
  const auto step = static_cast<std::int64_t>(limit / row);
  for (std::int64_t first = 0; first < rows; first += step) {
    visit(tensor.narrow(0, first, std::min(step, rows - first)));
  }
}

// A CPU tensor of pinned bytes; undefined if the device has no allocator of such memory.
at::Tensor pinned_bytes(c10::DeviceType type, std::size_t size) {
  at::HostAllocator* const allocator = at::getHostAllocator(type);
  if (allocator == nullptr) {
    return {};
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), size, allocator->allocate(size), nullptr);
  return at::empty({0}, at::TensorOptions().dtype(at::kByte))
      .set_(std::move(storage), 0, {static_cast<std::int64_t>(size)}, {1});
}

}  // namespace

// The place of one piece in both rings. The ring and the snapshot share it.
class DeviceRing::Slot {
 public:
  Slot(std::uint64_t begin, at::Tensor landing, c10::Event landed)
      : begin_(begin), landing_(std::move(landing)), landed_(std::move(landed)) {}

  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  // `stream` writes to the piece's place in the device ring next. Where the piece was given up, the
  // stream that wrote it may not have come so far, and would overwrite what comes next.
  void leave_device_to(const c10::Stream& stream) const { landed_.block(stream); }
  // Whether neither ring needs to know of it any more.
  [[nodiscard]] bool is_over() {
    const std::unique_lock lock(mutex_, std::try_to_lock);  // held: it is being read
    return lock.owns_lock() && !landing_.defined() && landed_.query();
  }
  // The place in the pinned ring is used again next. What nobody has read yet moves.
  void leave_pinned() {
    const std::lock_guard lock(mutex_);
    if (landing_.defined()) {
      const std::span<const std::byte> bytes = wait();
      moved_ = ByteBuffers::of_process().take(bytes.size());
      std::copy(bytes.begin(), bytes.end(), moved_.begin());
      landing_.reset();
    }
  }
  // Waits for the piece. The ring leaves it where it is until `use` returns.
  void read(const ArrivingBytes::Use& use) {
    const std::lock_guard lock(mutex_);
    use(landing_.defined() ? wait() : moved_);
  }
  // Nobody wants the piece. The next user of the place comes later on our stream than this write.
  void give_up() {
    const std::lock_guard lock(mutex_);
    landing_.reset();
    ByteBuffers::of_process().give_back(std::exchange(moved_, {}));
  }

 private:
  [[nodiscard]] std::span<const std::byte> wait() const {
    const RelaxedCaptureMode relaxed;
    landed_.synchronize();
    return {static_cast<const std::byte*>(landing_.const_data_ptr()), landing_.nbytes()};
  }

  const std::uint64_t begin_;
  std::mutex mutex_;
  at::Tensor landing_;  // its part of the pinned ring; undefined once it has left
  const c10::Event landed_;
  std::vector<std::byte> moved_;  // the bytes, if they left unread
};

// All pieces of a tensor.
class DeviceRing::Pieces : public ArrivingBytes {
 public:
  explicit Pieces(std::size_t size) : size_(size) {}
  ~Pieces() override {
    for (const auto& slot : slots_) {
      slot->give_up();
    }
  }
  void add(std::shared_ptr<Slot> slot) { slots_.push_back(std::move(slot)); }

  [[nodiscard]] std::size_t size() const override { return size_; }
  void read(const Use& use) override {
    if (slots_.size() == 1) {
      slots_.front()->read(use);
      return;
    }
    std::vector<std::byte> whole = ByteBuffers::of_process().take(size_);
    auto next = whole.begin();
    for (const auto& slot : slots_) {
      slot->read([&](std::span<const std::byte> bytes) {
        next = std::copy(bytes.begin(), bytes.end(), next);
      });
    }
    use(whole);
    ByteBuffers::of_process().give_back(std::move(whole));
  }

 private:
  const std::size_t size_;
  std::vector<std::shared_ptr<Slot>> slots_;
};

std::unique_ptr<DeviceRing> DeviceRing::of(c10::Device device, std::size_t capacity) {
  const c10::DeviceGuard guard(device);
  const std::size_t size = capacity / kAlignment * kAlignment;
  at::Tensor pinned = pinned_bytes(device.type(), size);
  return pinned.defined()
             ? std::unique_ptr<DeviceRing>(new DeviceRing(device, size, std::move(pinned)))
             : nullptr;
}

DeviceRing::DeviceRing(c10::Device device, std::size_t capacity, at::Tensor pinned)
    : device_(device),
      capacity_(capacity),
      // Of high priority, where streams are taken in turn from a pool: programs rarely use those.
      side_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device, -1)),
      pinned_(std::move(pinned)),
      ready_(device.type()),
      copied_(device.type()) {
  const c10::StreamGuard on_side(side_);
  on_device_ =
      at::empty({static_cast<std::int64_t>(capacity)}, at::TensorOptions(device).dtype(at::kByte));
  ready_.record(side_);
}

DeviceRing::~DeviceRing() = default;

std::unique_ptr<ArrivingBytes> DeviceRing::copy(const at::Tensor& tensor) {
  const RelaxedCaptureMode relaxed;
  const c10::DeviceGuard guard(device_);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  welcome(stream);
  auto pieces = std::make_unique<Pieces>(tensor.nbytes());
  // Two pieces at a time, so that one is written while another one leaves.
  for_each_piece(tensor.detach(), capacity_ / 2, [&](const at::Tensor& piece) {
    pieces->add(copy_piece(piece, stream));
  });
  return pieces;
}

std::shared_ptr<DeviceRing::Slot> DeviceRing::copy_piece(const at::Tensor& piece,
                                                         const c10::Stream& stream) {
  const std::size_t size = piece.nbytes();
  const std::uint64_t begin = make_room(size, stream);
  const auto first = static_cast<std::int64_t>(begin % capacity_);
  const at::Tensor bytes = on_device_.narrow(0, first, static_cast<std::int64_t>(size));
  bytes.view(piece.scalar_type()).view(piece.sizes()).copy_(piece, /*non_blocking=*/true);
  copied_.record(stream);
  copied_.block(side_);
  const at::Tensor landing = pinned_.narrow(0, first, static_cast<std::int64_t>(size));
  c10::Event landed(device_.type());
  {
    const c10::StreamGuard on_side(side_);
    landing.copy_(bytes, /*non_blocking=*/true);
    landed.record(side_);
  }
  slots_.push_back(std::make_shared<Slot>(begin, landing, std::move(landed)));
  return slots_.back();
}

std::uint64_t DeviceRing::make_room(std::size_t size, const c10::Stream& stream) {
  while (!slots_.empty() && slots_.front()->is_over()) {
    slots_.pop_front();
  }
  std::uint64_t begin = aligned(end_);
  if (begin % capacity_ + size > capacity_) {
    begin += capacity_ - begin % capacity_;  // it does not fit behind the last one
  }
  end_ = begin + size;
  std::shared_ptr<Slot> last;
  while (!slots_.empty() && slots_.front()->begin() + capacity_ < end_) {
    last = std::move(slots_.front());
    slots_.pop_front();
    last->leave_pinned();
  }
  if (last != nullptr) {
    last->leave_device_to(stream);  // the others left before
  }
  return begin;
}

// The memory was allocated for our stream; before it is freed, the allocator must know of all other
// streams that use it.
void DeviceRing::welcome(const c10::Stream& stream) {
  if (std::find(users_.begin(), users_.end(), stream) == users_.end()) {
    ready_.block(stream);
    c10::impl::VirtualGuardImpl(device_.type())
        .recordDataPtrOnStream(on_device_.storage().data_ptr(), stream);
    users_.push_back(stream);
  }
}

}  // namespace ttrace
