// The hypotheses, one function each, in the order in which diagnose() tries them: those with the
// fewest free coefficients and the narrowest meaning first.
//
// A hypothesis explains a finding where what it leaves of the error is within
// Evidence::tolerance(). Each returns nothing where it does not apply, lacks records, or leaves
// more.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/findings/diagnosis.h"

#include <optional>

namespace ttrace {

// A scalar named *norm* that equals the norm of main gradients of one rank, counts replicas, or
// leaves experts, vectors or everything out.
[[nodiscard]] std::optional<Diagnosis> find_local_norm(const Evidence& evidence);

// A record that equals, byte for byte, what the same rank recorded before the step or for another
// micro-batch, while the reference's two values differ.
[[nodiscard]] std::optional<Diagnosis> find_stale(const Evidence& evidence);

// Copies that disagree and add up to the reference, equal ones and a bias counted once.
[[nodiscard]] std::optional<Diagnosis> find_unsummed_replicas(const Evidence& evidence);

// d = a r + b bias by least squares: a factor, a bias added again, a sum without its bias repeated.
[[nodiscard]] std::optional<Diagnosis> find_factor_or_bias(const Evidence& evidence);

// A gradient of router scores with the gradient of an auxiliary loss in it once too often, or not
// at all.
[[nodiscard]] std::optional<Diagnosis> find_auxiliary_loss(const Evidence& evidence);

// d = a x what the tensor's buffer held before.
[[nodiscard]] std::optional<Diagnosis> find_leftover(const Evidence& evidence);

// Parts of several ranks, each a multiple of the reference's; of an update by its first moment.
[[nodiscard]] std::optional<Diagnosis> find_rank_factors(const Evidence& evidence);

// Rows, each a multiple of the reference's.
[[nodiscard]] std::optional<Diagnosis> find_row_factors(const Evidence& evidence);

// A weight's gradient made from another input than the module's, or without one of its uses.
[[nodiscard]] std::optional<Diagnosis> find_weight_gradient(const Evidence& evidence);

// A main gradient as sum over the parameter's gradients per micro-batch and addend, by least
// squares for each rank that holds it.
[[nodiscard]] std::optional<Diagnosis> find_gradient_addends(const Evidence& evidence);

// A linear module's output (or the gradient of its input) as sum over the addends of the ranks that
// hold its weight, computed again from the candidate's own records at sampled places.
[[nodiscard]] std::optional<Diagnosis> find_linear_addends(const Evidence& evidence);

// Equal blocks along one dimension, each within tolerance of another block of the reference; of the
// whole tensor, or of what every rank holds.
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

// What the reference has in another layer, or under another layer's number.
[[nodiscard]] std::optional<Diagnosis> find_wrong_layer(const Evidence& evidence);

// A mean loss that is another sum or mean of the candidate's own losses of tokens.
[[nodiscard]] std::optional<Diagnosis> find_loss_normalisation(const Evidence& evidence);

// AdamW's coefficients, fitted to each side's own records.
[[nodiscard]] std::optional<Diagnosis> find_optimizer(const Evidence& evidence);

// The magnitude and the format that each side's scale was made from; parts of ranks that each took
// their own; scales of one side alone.
[[nodiscard]] std::optional<Diagnosis> find_fp8_scale(const Evidence& evidence);

// Queries and keys turned by other positions, with another base or in other pairs.
[[nodiscard]] std::optional<Diagnosis> find_positions(const Evidence& evidence);

// Attention computed again from recorded inputs with another scale or mask.
[[nodiscard]] std::optional<Diagnosis> find_attention(const Evidence& evidence);

// An activation or a norm computed again as another one of its family.
[[nodiscard]] std::optional<Diagnosis> find_other_variant(const Evidence& evidence);

// NaN and Inf that only one side has.
[[nodiscard]] std::optional<Diagnosis> find_non_finite(const Evidence& evidence);

// Choices of experts beyond what round-off explains.
[[nodiscard]] std::optional<Diagnosis> find_routing_flip(const Evidence& evidence);

// Rows of experts' inputs that the reference gives to another expert.
[[nodiscard]] std::optional<Diagnosis> find_misrouted_rows(const Evidence& evidence);

// A recomputed value that is not the first one.
[[nodiscard]] std::optional<Diagnosis> find_recompute(const Evidence& evidence);

// Data, or parameters of the first step, that nothing above explains.
[[nodiscard]] std::optional<Diagnosis> find_source(const Evidence& evidence);

// What is left to say of copies that differ.
[[nodiscard]] std::optional<Diagnosis> find_diverged_replicas(const Evidence& evidence);

}  // namespace ttrace
