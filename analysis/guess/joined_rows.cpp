#include "analysis/guess/joined_rows.h"

#include "trace/base/random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

// Where a row lies, if only one tensor has it.
struct RowPlace {
  UnitNumber unit = 0;
  std::int64_t row = 0;
  bool unique = true;
};

using RowPlaces = std::unordered_map<std::uint64_t, RowPlace>;

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
    const MergeResult* const values =
        own.unit(number).role == UnitRole::kParameter ? own.values(number) : nullptr;
    if (values == nullptr || state.pairings.has(side, number)) {
      continue;
    }
    std::int64_t row = 0;
    for (const std::uint64_t digest : rows_of(*values, type)) {
      const auto [place, is_new] = places.try_emplace(digest, RowPlace{number, row, true});
      place->second.unique = is_new;
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

std::vector<Piece> pieces_in(const std::vector<std::uint64_t>& rows, const RowPlaces& places) {
  std::vector<Piece> pieces;
  for (const std::uint64_t digest : rows) {
    const auto found = places.find(digest);
    if (found == places.end() || !found->second.unique) {
      return {};
    }
    const RowPlace& place = found->second;
    if (!pieces.empty() && pieces.back().unit == place.unit &&
        pieces.back().first + pieces.back().extent == place.row) {
      ++pieces.back().extent;
    } else {
      pieces.push_back({place.unit, place.row, 1});
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
    const MergeResult* const values =
        unit.role == UnitRole::kParameter ? own.values(number) : nullptr;
    if (values == nullptr || state.pairings.has(whole_side, number)) {
      continue;
    }
    for (const Arrangement& how : ways(unit)) {
      const auto rows =
          how.is_same() ? rows_of(*values, type) : rows_of(to_candidate(*values, how), type);
      auto found = fusion_of(state.side(part_side), pieces_in(rows, places));
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

std::vector<double> rounded(std::span<const double> numbers, ElementType type) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  std::vector<std::byte> bytes(numbers.size() * element_size(type));
  from_double(type, numbers.data(), count, bytes.data());
  std::vector<double> result(numbers.size());
  to_double(type, bytes.data(), count, result.data());
  return result;
}

void pair_joined_rows(GuessState& state, ElementType type) {
  pair_wholes(state, Names::kCandidate, type);
  pair_wholes(state, Names::kReference, type);
}

}  // namespace ttrace
