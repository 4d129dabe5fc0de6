#include "hooks/base/row_parts.h"

#include <ttrace/error.h>

#include <cstring>
#include <map>
#include <utility>

namespace ttrace {
namespace {

void check(const Rows& rows, const std::vector<std::int64_t>& shape) {
  TTRACE_CHECK(rows.dim < shape.size(),
               UsageError,
               "Rows::dim is ",
               rows.dim,
               ", but the tensor has ",
               shape.size(),
               " dimensions; choose one of them");
  TTRACE_CHECK(std::ssize(rows.index) == shape[rows.dim],
               UsageError,
               "Rows::index has ",
               rows.index.size(),
               " entries, but dimension ",
               rows.dim,
               " of the tensor has ",
               shape[rows.dim],
               " rows; give each of them its logical row");
  const std::size_t expected = rows.microbatches.empty() ? 0 : rows.index.size();
  TTRACE_CHECK(rows.microbatch.size() == expected,
               UsageError,
               "Rows::microbatch has ",
               rows.microbatch.size(),
               " entries, but needs ",
               expected,
               "; give one per row, or none if Rows::microbatches is empty");
}

}  // namespace

std::vector<RowPart> split_rows(const Rows& rows,
                                const std::vector<std::int64_t>& shape,
                                const std::shared_ptr<MicrobatchState>& current) {
  check(rows, shape);
  std::vector<RowPart> parts;
  const auto place = [&](RowPart& part, const std::vector<std::int64_t>& index) {
    part.dim = rows.dim;
    part.placement = index_map(index, rows.size);
    part.placement.sparse = rows.sparse;
  };
  if (rows.microbatches.empty()) {
    RowPart& part = parts.emplace_back();
    part.microbatch = current;
    part.all = true;
    place(part, rows.index);
    return parts;
  }
  std::map<std::int64_t, std::size_t> part_of;
  for (const std::int64_t microbatch : rows.microbatches) {
    if (part_of.emplace(microbatch, parts.size()).second) {
      auto state = std::make_shared<MicrobatchState>(*current);
      state->index = microbatch;
      parts.emplace_back().microbatch = std::move(state);
    }
  }
  std::vector<std::vector<std::int64_t>> indices(parts.size());
  for (std::size_t i = 0; i < rows.index.size(); ++i) {
    if (rows.index[i] == kPadding) {
      continue;
    }
    const auto found = part_of.find(rows.microbatch[i]);
    TTRACE_CHECK(
        found != part_of.end(),
        UsageError,
        "row ",
        i,
        " belongs to micro-batch ",
        rows.microbatch[i],
        ", which Rows::microbatches does not list; list all micro-batches that rows may come from");
    parts[found->second].local.push_back(static_cast<std::int64_t>(i));
    indices[found->second].push_back(rows.index[i]);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    place(parts[i], indices[i]);
  }
  return parts;
}

namespace {

// Calls body(whole, part) for every run of `size` bytes that a row of `part` has, with the run's
// byte positions in the whole tensor and in the result of select_rows().
template <class Body>
void for_each_run(const TensorCopy& copy, const RowPart& part, Body body) {
  std::size_t row = element_size(copy.type);
  for (std::size_t dim = part.dim + 1; dim < copy.shape.size(); ++dim) {
    row *= static_cast<std::size_t>(copy.shape[dim]);
  }
  const std::size_t block = row * static_cast<std::size_t>(copy.shape[part.dim]);
  std::size_t at = 0;
  for (std::size_t start = 0; start < copy.bytes.size(); start += block) {
    for (const std::int64_t local : part.local) {
      body(start + row * static_cast<std::size_t>(local), at, row);
      at += row;
    }
  }
}

}  // namespace

TensorCopy select_rows(const TensorCopy& copy, const RowPart& part) {
  if (part.all) {
    return copy;
  }
  TensorCopy result{copy.type, copy.shape, {}};
  result.shape[part.dim] = std::ssize(part.local);
  for_each_run(copy, part, [&](std::size_t whole, std::size_t /*at*/, std::size_t size) {
    const auto first = copy.bytes.begin() + static_cast<std::ptrdiff_t>(whole);
    result.bytes.insert(result.bytes.end(), first, first + static_cast<std::ptrdiff_t>(size));
  });
  return result;
}

void put_rows(const std::vector<std::byte>& bytes, const RowPart& part, TensorCopy& copy) {
  if (part.all) {
    copy.bytes = bytes;
    return;
  }
  for_each_run(copy, part, [&](std::size_t whole, std::size_t at, std::size_t size) {
    std::memcpy(&copy.bytes[whole], &bytes[at], size);
  });
}

}  // namespace ttrace
