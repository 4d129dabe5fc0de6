// The hypotheses, one function each, in the order in which diagnose() tries them: those with the
// fewest free coefficients and the narrowest meaning first.
//
// A hypothesis explains a finding where what it leaves of the error is within
// Evidence::tolerance(). Each returns nothing where it does not apply, lacks records, or leaves
// more.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/diagnosis/diagnosis.h"
#include "analysis/diagnosis/evidence.h"

#include <optional>

namespace ttrace {

// A scalar named *norm* that equals the norm of main gradients of one rank, or counts replicas.
[[nodiscard]] std::optional<Diagnosis> find_local_norm(const Evidence& evidence);

// A record that equals, byte for byte, what the same rank recorded before the step or for another
// micro-batch, while the reference's two values differ.
[[nodiscard]] std::optional<Diagnosis> find_stale(const Evidence& evidence);

// Copies that disagree and add up to the reference, equal ones and a bias counted once.
[[nodiscard]] std::optional<Diagnosis> find_unsummed_replicas(const Evidence& evidence);

// d = a r + b bias by least squares: a factor, a bias added again, a sum without its bias repeated.
[[nodiscard]] std::optional<Diagnosis> find_factor_or_bias(const Evidence& evidence);

// A main gradient as sum over the parameter's gradients per micro-batch and addend, by least
// squares for each rank that holds it.
[[nodiscard]] std::optional<Diagnosis> find_gradient_addends(const Evidence& evidence);

// A linear module's output (or the gradient of its input) as sum over the addends of the ranks that
// hold its weight, computed again from the candidate's own records at sampled places.
[[nodiscard]] std::optional<Diagnosis> find_linear_addends(const Evidence& evidence);

// Equal blocks along one dimension, each within tolerance of another block of the reference.
[[nodiscard]] std::optional<Diagnosis> find_wrong_order(const Evidence& evidence);

// Slices of any number, or rows: shifted along their dimension, or each near another one.
[[nodiscard]] std::optional<Diagnosis> find_row_order(const Evidence& evidence);

// The reference with its dimensions in another order.
[[nodiscard]] std::optional<Diagnosis> find_wrong_view(const Evidence& evidence);

// Different parts of one tensor, equal on several ranks where the reference's differ.
[[nodiscard]] std::optional<Diagnosis> find_duplicated_block(const Evidence& evidence);

// Numbers of a lower format on one side alone, which is all that the error is.
[[nodiscard]] std::optional<Diagnosis> find_precision(const Evidence& evidence);

// A run of slices that are zero, or what the buffer held before, carries the whole error.
[[nodiscard]] std::optional<Diagnosis> find_untouched_block(const Evidence& evidence);

// Slices next to the edges between ranks' parts carry the whole error.
[[nodiscard]] std::optional<Diagnosis> find_boundary(const Evidence& evidence);

// d is one number, one number per row or one vector for all rows; or roundings of one sign.
[[nodiscard]] std::optional<Diagnosis> find_constant_bias(const Evidence& evidence);

// A few slices along one dimension, or a few tokens, carry the whole error.
[[nodiscard]] std::optional<Diagnosis> find_localised(const Evidence& evidence);

// What is left to say of copies that differ.
[[nodiscard]] std::optional<Diagnosis> find_diverged_replicas(const Evidence& evidence);

}  // namespace ttrace
