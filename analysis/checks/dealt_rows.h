// Rows of which nobody says to whom they belong: a packed sequence, the tokens of a branch.
//
// Where a program picks rows by their values, each rank holds as many as its samples have. Nobody
// declares which rows of the reference's these are, and no cut explains other numbers of them on
// each rank. That they are as many as the reference has together is all that can be checked.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/not_seen.h"

#include <optional>
#include <span>

namespace ttrace {

// Whether the ranks' tensors, whose place nobody declares, contradict one another by their shapes,
// and have together what the reference has of one dimension.
[[nodiscard]] bool has_dealt_rows(const Match& match);

// What the report says of them; nothing where there are none.
[[nodiscard]] std::optional<UnseenPart> unseen_rows(std::span<const Match> matches);

}  // namespace ttrace
