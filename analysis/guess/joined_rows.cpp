#include "analysis/guess/joined_rows.h"

#include "analysis/align/values.h"
#include "trace/base/random.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

// Where a row lies.
struct RowPlace {
  UnitNumber unit = 0;
  std::int64_t row = 0;
};

// Rows of the same numbers have several places: layers can begin as copies of one.
using RowPlaces = std::unordered_map<std::uint64_t, std::vector<RowPlace>>;

std::uint64_t digest_of(std::span<const double> row) {
  std::uint64_t digest = row.size();
  for (const double number : row) {
    digest = scramble(digest ^ std::bit_cast<std::uint64_t>(number == 0.0 ? 0.0 : number));
  }
  return digest;
}

// A tensor's digests, row by row; nothing for vectors, whose rows are single numbers.
std::vector<std::uint64_t> rows_of(const MergeResult& tensor, ElementType type) {
  if (tensor.shape.size() < 2 || tensor.shape[0] < 1) {
    return {};
  }
  const std::vector<double> numbers = rounded(numbers_of(tensor), type);
  const std::size_t width = numbers.size() / static_cast<std::size_t>(tensor.shape[0]);
  std::vector<std::uint64_t> digests;
  for (std::size_t at = 0; width > 1 && at < numbers.size(); at += width) {
    digests.push_back(digest_of(std::span(numbers).subspan(at, width)));
  }
  return digests;
}

RowPlaces places_of(const GuessState& state, Names side, ElementType type) {
  RowPlaces places;
  const GuessSide& own = state.side(side);
  for (UnitNumber number = 0; number < own.units().size(); ++number) {
    const TensorValues values =
        own.unit(number).role == UnitRole::kParameter ? own.values(number) : nullptr;
    if (values == nullptr || state.pairings.has(side, number)) {
      continue;
    }
    std::int64_t row = 0;
    for (const std::uint64_t digest : rows_of(*values, type)) {
      places[digest].push_back({number, row});
      ++row;
    }
  }
  return places;
}

// Consecutive rows of one part.
struct Piece {
  UnitNumber unit = 0;
  std::int64_t first = 0;
  std::int64_t extent = 0;
};

// Decides by gradients between places with the same numbers.
class Chooser {
 public:
  Chooser(const GuessState& state, Names whole_side, UnitNumber whole, const Arrangement& how)
      : parts_(state.side(other(whole_side))) {
    const GuessSide& own = state.side(whole_side);
    const auto gradients = own.gradients(whole);
    const TensorValues values = gradients.empty() ? nullptr : own.values(gradients.front());
    if (values != nullptr) {
      gradient_ =
          how.is_same() ? values : std::make_shared<MergeResult>(to_candidate(*values, how));
      limit_ = round_off(own.type_of(gradients.front()), own.type_of(gradients.front()));
    }
  }

  // Of `places`, whose numbers the whole has in `row`; nothing if that stays open.
  [[nodiscard]] std::optional<RowPlace> choose(std::span<const RowPlace> places,
                                               std::int64_t row) const {
    if (places.size() == 1) {
      return places.front();
    }
    std::optional<RowPlace> found;
    for (const RowPlace& place : places) {
      if (agrees(place, row)) {
        if (found) {
          return std::nullopt;
        }
        found = place;
      }
    }
    return found;
  }

 private:
  [[nodiscard]] bool agrees(const RowPlace& place, std::int64_t row) const {
    const auto gradients = parts_.gradients(place.unit);
    const TensorValues own = gradients.empty() ? nullptr : parts_.values(gradients.front());
    if (gradient_ == nullptr || own == nullptr) {
      return false;
    }
    const auto mine = row_of(*own, place.row);
    const auto whole = row_of(*gradient_, row);
    return mine.size() == whole.size() && norm(whole) > 0.0 &&
           distance(mine, whole) <= limit_ * norm(whole);
  }

  [[nodiscard]] static std::span<const double> row_of(const MergeResult& tensor, std::int64_t row) {
    const auto numbers = numbers_of(tensor);
    const std::size_t width = numbers.size() / static_cast<std::size_t>(tensor.shape[0]);
    return numbers.subspan(static_cast<std::size_t>(row) * width, width);
  }

  const GuessSide& parts_;
  TensorValues gradient_;
  double limit_ = 0.0;
};

std::vector<Piece> pieces_in(const std::vector<std::uint64_t>& rows,
                             const RowPlaces& places,
                             const Chooser& chooser) {
  std::vector<Piece> pieces;
  std::int64_t row = 0;
  for (const std::uint64_t digest : rows) {
    const auto found = places.find(digest);
    if (found == places.end()) {
      return {};
    }
    const auto place = chooser.choose(found->second, row++);
    if (!place) {
      return {};
    }
    if (!pieces.empty() && pieces.back().unit == place->unit &&
        pieces.back().first + pieces.back().extent == place->row) {
      ++pieces.back().extent;
    } else {
      pieces.push_back({place->unit, place->row, 1});
    }
  }
  return pieces;
}

// The parts and how they are put together, if the pieces are those of whole parts in the same order
// in every group.
std::optional<std::pair<std::vector<UnitNumber>, Fusion>> fusion_of(const GuessSide& side,
                                                                    std::span<const Piece> pieces) {
  std::vector<UnitNumber> parts;
  for (const Piece& piece : pieces) {
    if (std::ranges::find(parts, piece.unit) == parts.end()) {
      parts.push_back(piece.unit);
    }
  }
  if (parts.size() < 2 || pieces.size() % parts.size() != 0) {
    return std::nullopt;
  }
  Fusion fusion;
  fusion.groups = static_cast<std::int64_t>(pieces.size() / parts.size());
  std::int64_t common = 0;
  for (const UnitNumber part : parts) {
    fusion.ratio.push_back(side.unit(part).shape[0]);
    common = std::gcd(common, fusion.ratio.back());
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t part = i % parts.size();
    const std::int64_t extent = fusion.ratio[part] / fusion.groups;
    if (pieces[i].unit != parts[part] || pieces[i].extent != extent ||
        pieces[i].first != extent * static_cast<std::int64_t>(i / parts.size())) {
      return std::nullopt;
    }
  }
  for (std::int64_t& share : fusion.ratio) {
    share /= common;
  }
  return std::pair(std::move(parts), std::move(fusion));
}

// The whole tensor, and its transpose where it has two dimensions: how the parts' side has it.
std::vector<Arrangement> ways(const Unit& whole) {
  std::vector<Arrangement> ways(1);
  if (whole.shape.size() == 2) {
    ways.push_back({"a b", "b a"});
  }
  return ways;
}

void pair_wholes(GuessState& state, Names whole_side, ElementType type) {
  const Names part_side = other(whole_side);
  const RowPlaces places = places_of(state, part_side, type);
  const GuessSide& own = state.side(whole_side);
  for (UnitNumber number = 0; number < own.units().size(); ++number) {
    const Unit& unit = own.unit(number);
    const TensorValues values = unit.role == UnitRole::kParameter ? own.values(number) : nullptr;
    if (values == nullptr || state.pairings.has(whole_side, number)) {
      continue;
    }
    for (const Arrangement& how : ways(unit)) {
      const auto rows =
          how.is_same() ? rows_of(*values, type) : rows_of(to_candidate(*values, how), type);
      auto found = fusion_of(state.side(part_side),
                             pieces_in(rows, places, Chooser(state, whole_side, number, how)));
      const bool is_free = found && std::ranges::none_of(found->first, [&](UnitNumber part) {
                             return state.pairings.has(part_side, part);
                           });
      if (is_free) {
        Pairing pairing{.fusion = std::move(found->second),
                        .dims = how,
                        .certainty = Certainty::kCertain,
                        .evidence = "equal values, row by row"};
        pairing.of(part_side) = std::move(found->first);
        pairing.of(whole_side) = {number};
        state.pairings.add(std::move(pairing));
        break;
      }
    }
  }
}

}  // namespace

void pair_joined_rows(GuessState& state, ElementType type) {
  pair_wholes(state, Names::kCandidate, type);
  pair_wholes(state, Names::kReference, type);
}

}  // namespace ttrace
