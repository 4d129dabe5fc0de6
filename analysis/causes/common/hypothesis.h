// What it costs to believe an explanation of a finding.
//
// Every explanation is measured as a description of the candidate's tensor, given the reference's:
// in bits, as a minimum description length. It pays for what it leaves of the error, for every free
// number that was fitted, and for the choice among claims that are equally simple. The shortest
// description is the best explanation, whatever the order in which they were found.
//
// Thread-safety: plain values and free functions without shared state.
// Source: J. Rissanen, "Modeling by shortest data description", Automatica 14 (1978); two-part
// codes with 1/2 log2 n bits for a fitted number, which is Schwarz's criterion (BIC) in bits.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/findings/diagnosis.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

using Hypotheses = std::vector<Hypothesis>;

// The claim `signature` that leaves `rest` of all of the finding's error.
[[nodiscard]] Hypothesis about(const Sides& sides,
                               Signature signature,
                               double rest,
                               std::string sentence);

void append(Hypotheses& list, Hypotheses more);
void append(Hypotheses& list, std::optional<Hypothesis> one);

// "the error falls from 2.1 to 0.003"
[[nodiscard]] std::string fall_text(double error, double rest);

// Bits that say which of `count` equally simple claims is meant; 0 for one.
[[nodiscard]] double bits_of_choice(double count);

// Each of them as one of `count` equally simple claims.
[[nodiscard]] Hypotheses chosen_of(std::size_t count, Hypotheses hypotheses);

// Bits of one fitted number: 1/2 log2 n for n elements, the price of BIC.
[[nodiscard]] double bits_of_number(const Evidence& evidence);

// The length of the description in bits.
[[nodiscard]] double description_length(const Evidence& evidence, const Hypothesis& hypothesis);

}  // namespace ttrace
