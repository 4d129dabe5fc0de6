#include "hooks/replace/dyadic_values.h"

#include "hooks/replace/overlay.h"
#include "trace/base/kind.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/place/fill.h"

#include <utility>

namespace ttrace {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr int kRange =
    3;  // products of two such numbers are at most 9: 2^20 of them add up exactly
constexpr int kExponent = -2;           // of activations and gradients
constexpr int kParameterExponent = -4;  // so that scores of attention stay moderate

// Values of the graph; the optimizer's state follows from them.
bool is_replaced(Kind kind) {
  return kind == Kind::kParam || is_of_graph(kind);
}

TensorId first_forward(TensorId id) {
  id.recompute = false;
  return id;
}

}  // namespace

DyadicValues::DyadicValues(const std::string& reference) : follows_(!reference.empty()) {
  if (!follows_) {
    return;
  }
  const Trace trace = Trace::open(reference);
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      if (is_replaced(record.id.kind)) {
        replaced_.insert(record.id);
      }
    }
  }
}

std::optional<std::vector<std::byte>> DyadicValues::value(const TensorId& id,
                                                          const Placement& placement,
                                                          const TensorCopy& own) const {
  const TensorId first = first_forward(id);
  if (!is_replaced(id.kind) || !is_floating(own.type) || (follows_ && !replaced_.contains(first))) {
    return std::nullopt;
  }
  MergeResult logical;
  logical.type = own.type;
  logical.shape = placement.logical_shape();
  logical.storage.resize(static_cast<std::size_t>(element_count(logical.shape)) *
                         element_size(own.type));
  logical.bytes = logical.storage;
  Placement alone = placement;
  alone.partial_index = 0;
  alone.partial_count = 1;
  if (placement.partial_index == 0) {
    const int exponent = id.kind == Kind::kParam ? kParameterExponent : kExponent;
    fill(to_string(first),
         whole(logical.shape),
         kSeed,
         {.center = 0.0, .exponent = exponent, .range = kRange},
         own.type,
         logical.storage.data());
  }
  return overlay(own, alone, logical);
}

}  // namespace ttrace
