#include "hooks/capture/gradient_waits.h"

#include <utility>

namespace ttrace {

void GradientWaits::expect(const GradientSlotPtr& slot, const TensorId& value, Kind gradient_kind) {
  if (slot == nullptr) {
    return;
  }
  slot->value = value;
  slot->id = value;
  slot->id.kind = gradient_kind;
  slot->id.recompute = false;  // wherever the hook sits, a gradient comes once
  slots_.push_back(slot);
}

std::int64_t GradientWaits::add_local(GradientSlotPtr slot) {
  local_slots_.push_back(std::move(slot));
  return std::ssize(local_slots_) - 1;
}

GradientSlotPtr GradientWaits::local(std::int64_t number) const {
  return number >= 0 && number < std::ssize(local_slots_)
             ? local_slots_[static_cast<std::size_t>(number)]
             : nullptr;
}

bool GradientWaits::is_awaited(const GradientSlot& slot, std::int64_t step) {
  return !slot.discarded && !slot.recorded && !slot.id.path.empty() && slot.id.step == step;
}

void GradientWaits::keep_fallback(GradientSlot& slot, Snapshot gradient) {
  slot.fallback = std::move(gradient);
  slot.fallback_turn = recorder_.take_turn();
}

std::optional<Snapshot> GradientWaits::arrive(GradientSlot& slot) {
  slot.recorded = true;
  return std::exchange(slot.fallback, std::nullopt);
}

bool GradientWaits::wants(const GradientSlot& slot) const {
  return slot.rows.empty() ? recorder_.wants(slot.id) : recorder_.wants(slot.rows, slot.id.kind);
}

void GradientWaits::record(const GradientSlot& slot, Snapshot gradient) {
  if (recorded_.insert(slot.id).second) {
    record(slot, std::move(gradient), Turn());
  }
}

void GradientWaits::note_unreadable(const GradientSlot& slot, const std::string& reason) {
  if (recorded_.insert(slot.id).second) {
    recorder_.note_unreadable(slot.id, reason);
  }
}

void GradientWaits::record(const GradientSlot& slot, Snapshot gradient, const Turn& turn) {
  if (slot.rows.empty()) {
    recorder_.record(slot.id, std::move(gradient), {slot.microbatch.get(), slot.inferred, turn});
  } else {
    recorder_.record_rows(slot.rows, slot.id.kind, std::move(gradient).take(), turn);
  }
}

std::size_t GradientWaits::settle() {
  std::size_t missing = 0;
  for (const GradientSlotPtr& slot : slots_) {
    // Hooks of the graph may keep the slot; the values must not stay with it.
    std::optional<Snapshot> fallback = std::exchange(slot->fallback, std::nullopt);
    if (slot->recorded || slot->discarded || recorded_.contains(slot->id)) {
      continue;
    }
    if (fallback) {
      recorded_.insert(slot->id);
      record(*slot, *std::move(fallback), slot->fallback_turn);
    } else if (recorder_.wants(slot->id)) {
      ++missing;
      recorder_.note(to_string(slot->value) + " got no gradient");
    }
  }
  slots_.clear();
  return missing;
}

void GradientWaits::clear() {
  for (const GradientSlotPtr& slot : slots_) {
    slot->fallback.reset();
  }
  slots_.clear();
  local_slots_.clear();
  recorded_.clear();
}

}  // namespace ttrace
