// Sentences about samples.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/samples/data_rows.h"
#include "trace/samples/deal_samples.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// "0-3, 6", at most eight parts and "...". Requires: ascending numbers.
[[nodiscard]] std::string numbers_text(std::span<const std::int64_t> numbers);
// "rank 1", "ranks 0-3".
[[nodiscard]] std::string ranks_of_samples(const std::vector<int>& ranks);

// How the samples of the complete micro-batches are dealt, one sentence for those dealt alike.
[[nodiscard]] std::vector<std::string> dealing_sentences(const DataRows& rows,
                                                         const DealtSamples& dealt);

// Where the samples of complete micro-batches have other numbers of positions than in the
// reference, one sentence for each of these.
[[nodiscard]] std::vector<std::string> padding_sentences(const DataRows& rows,
                                                         const DealtSamples& dealt);

// What is wrong with an incomplete micro-batch of the reference, and on which ranks.
struct IncompleteText {
  std::string sentence;
  std::vector<int> ranks;
};
[[nodiscard]] IncompleteText incomplete_text(std::int64_t microbatch,
                                             const DataRows& rows,
                                             const DealtSamples& dealt);
// The samples that are none of the reference's; an empty sentence if there are none.
[[nodiscard]] IncompleteText unknown_text(const DataRows& rows, const DealtSamples& dealt);

}  // namespace ttrace
