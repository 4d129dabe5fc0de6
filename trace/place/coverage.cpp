#include "trace/place/coverage.h"

#include <ttrace/error.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// A regular layout has as many cells as regions; this many need hundreds of ranks whose cuts are
// unrelated in three dimensions.
constexpr std::size_t kMostCells = std::size_t{1} << 24U;
// One dimension, cut into atoms: the indices that the same regions claim.
struct CutDimension {
  std::vector<IndexSet> atoms;
  std::vector<std::vector<std::size_t>> atoms_of;  // by region; ascending
};

CutDimension cut(std::span<const Region> regions, std::size_t dim, const IndexSet& space) {
  std::set<std::int64_t> edges;
  for (const Interval& interval : space) {
    edges.insert({interval.begin, interval.end});
  }
  for (const Region& region : regions) {
    for (const Interval& interval : region[dim]) {
      edges.insert({interval.begin, interval.end});
    }
  }
  const std::vector<std::int64_t> starts(edges.begin(), edges.end());
  std::vector<std::vector<std::size_t>> owners(starts.size() - 1);
  for (std::size_t number = 0; number < regions.size(); ++number) {
    for (const Interval& interval : regions[number][dim]) {
      const auto begin = std::lower_bound(starts.begin(), starts.end(), interval.begin);
      for (auto i = static_cast<std::size_t>(begin - starts.begin()); starts[i] < interval.end;
           ++i) {
        owners[i].push_back(number);
      }
    }
  }
  CutDimension result;
  result.atoms_of.resize(regions.size());
  std::map<std::vector<std::size_t>, std::size_t> atom_of_owners;
  auto within = space.begin();  // the first interval that ends beyond
  for (std::size_t i = 0; i < owners.size(); ++i) {
    while (within != space.end() && within->end <= starts[i]) {
      ++within;
    }
    if (within == space.end() || within->begin > starts[i]) {
      continue;  // between two intervals of the space
    }
    const auto [entry, is_new] = atom_of_owners.try_emplace(owners[i], result.atoms.size());
    if (is_new) {
      result.atoms.emplace_back();
      for (const std::size_t owner : owners[i]) {
        result.atoms_of[owner].push_back(entry->second);
      }
    }
    result.atoms[entry->second].push_back({starts[i], starts[i + 1]});
  }
  return result;
}

std::size_t count_cells(const std::vector<CutDimension>& dims) {
  std::size_t cells = 1;
  for (const CutDimension& dim : dims) {
    cells *= dim.atoms.size();
    TTRACE_CHECK(cells <= kMostCells,
                 FormatError,
                 "the ranks' placements cut a tensor into more than ",
                 kMostCells,
                 " pieces, which is too irregular to check; correct its dims");
  }
  return cells;
}

// Calls `visit(cell)` for the row-major number of every cell of a region.
template <class Visit>
void for_each_cell(const std::vector<CutDimension>& dims,
                   std::size_t region,
                   std::size_t dim,
                   std::size_t cell,
                   const Visit& visit) {
  if (dim == dims.size()) {
    visit(cell);
    return;
  }
  for (const std::size_t atom : dims[dim].atoms_of[region]) {
    for_each_cell(dims, region, dim + 1, cell * dims[dim].atoms.size() + atom, visit);
  }
}

// The atom of a cell, by dimension.
std::vector<std::size_t> atoms_of_cell(const std::vector<CutDimension>& dims, std::size_t cell) {
  std::vector<std::size_t> atoms(dims.size());
  for (std::size_t dim = dims.size(); dim-- > 0;) {
    atoms[dim] = cell % dims[dim].atoms.size();
    cell /= dims[dim].atoms.size();
  }
  return atoms;
}

std::vector<Region> regions_of_cells(const std::vector<CutDimension>& dims,
                                     const std::vector<std::size_t>& cells) {
  std::vector<Region> single;
  std::vector<std::set<std::size_t>> used(dims.size());
  for (const std::size_t cell : cells) {
    const std::vector<std::size_t> atoms = atoms_of_cell(dims, cell);
    Region& region = single.emplace_back();
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      used[dim].insert(atoms[dim]);
      region.push_back(normalised(dims[dim].atoms[atoms[dim]]));
    }
  }
  std::size_t product = 1;
  Region joined;
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    product *= used[dim].size();
    IndexSet intervals;
    for (const std::size_t atom : used[dim]) {
      const IndexSet& piece = dims[dim].atoms[atom];
      intervals.insert(intervals.end(), piece.begin(), piece.end());
    }
    joined.push_back(normalised(std::move(intervals)));
  }
  return product == cells.size() ? std::vector<Region>{joined} : single;
}

Region intersection(const Region& a, const Region& b) {
  Region common;
  for (std::size_t dim = 0; dim < a.size(); ++dim) {
    common.push_back(intersection(a[dim], b[dim]));
  }
  return common;
}

}  // namespace

Region region_of(std::span<const DimPlacement> dims) {
  Region region;
  for (const DimPlacement& dim : dims) {
    IndexSet intervals;
    for (const Segment& segment : dim.segments) {
      intervals.push_back({segment.logical, segment.logical + segment.extent});
    }
    region.push_back(normalised(std::move(intervals)));
  }
  return region;
}

std::int64_t element_count(const Region& region) {
  std::int64_t count = 1;
  for (const IndexSet& set : region) {
    count *= size_of(set);
  }
  return count;
}

std::string to_string(const Region& region) {
  std::string text = "[";
  for (std::size_t dim = 0; dim < region.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + to_string(region[dim]);
  }
  return text + "]";
}

Coverage cover(const Region& space, std::span<const Region> regions) {
  if (element_count(space) == 0) {
    return {};
  }
  std::vector<CutDimension> dims;
  for (std::size_t dim = 0; dim < space.size(); ++dim) {
    dims.push_back(cut(regions, dim, space[dim]));
  }
  constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  std::vector<std::size_t> owners(count_cells(dims), kNobody);
  std::set<std::pair<std::size_t, std::size_t>> overlapping;
  for (std::size_t number = 0; number < regions.size(); ++number) {
    for_each_cell(dims, number, 0, 0, [&](std::size_t cell) {
      if (owners[cell] == kNobody) {
        owners[cell] = number;
      } else {
        overlapping.insert({owners[cell], number});
      }
    });
  }
  Coverage coverage;
  for (const auto& [first, second] : overlapping) {
    coverage.overlaps.push_back({first, second, intersection(regions[first], regions[second])});
  }
  std::vector<std::size_t> uncovered;
  for (std::size_t cell = 0; cell < owners.size(); ++cell) {
    if (owners[cell] == kNobody) {
      uncovered.push_back(cell);
    }
  }
  if (!uncovered.empty()) {
    coverage.gaps = regions_of_cells(dims, uncovered);
  }
  return coverage;
}

}  // namespace ttrace
