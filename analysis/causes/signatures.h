// The hypotheses, one function each, in alphabetical order: their order means nothing.
//
// Each returns all claims that explain the finding: none where it does not apply, where records are
// missing, or where it leaves more of the error than Evidence::tolerance() allows. c is the
// candidate's tensor, r the reference's. Those that take Sides are asked only where the two lie
// side by side.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/common/hypothesis.h"

namespace ttrace {

// Attention computed again from recorded inputs with another scale or mask, or with other keys of
// other ranks' parts.
[[nodiscard]] Hypotheses find_attention(const Evidence& evidence, const Sides& sides);

// A gradient of router scores with the gradient of an auxiliary loss in it once too often, or not
// at all.
[[nodiscard]] Hypotheses find_auxiliary_gradient(const Evidence& evidence, const Sides& sides);

// Only slices next to the edges between ranks' parts are wrong.
[[nodiscard]] Hypotheses find_boundary(const Evidence& evidence, const Sides& sides);

// c - r is one number, one number per row, or one vector for all rows.
[[nodiscard]] Hypotheses find_constant_bias(const Evidence& evidence, const Sides& sides);

// Copies differ; this says no more.
[[nodiscard]] Hypotheses find_diverged_copies(const Evidence& evidence);

// Different parts of one tensor, equal on several ranks where the reference's differ.
[[nodiscard]] Hypotheses find_duplicated_part(const Evidence& evidence, const Sides& sides);

// c = a r.
[[nodiscard]] Hypotheses find_factor(const Evidence& evidence, const Sides& sides);

// The magnitude and the format that each side's scale was made from; scales and histories of ranks
// whose largest are the reference's.
[[nodiscard]] Hypotheses find_fp8_scale(const Evidence& evidence);

// A main gradient as a sum over the parameter's gradients per micro-batch and addend, by least
// squares for each rank that holds it.
[[nodiscard]] Hypotheses find_gradient_addends(const Evidence& evidence);

// A layer that the candidate has only under another number, or that two stages claim.
[[nodiscard]] Hypotheses find_layer_number(const Evidence& evidence);

// c = r + a x what the tensor's buffer held before.
[[nodiscard]] Hypotheses find_leftover(const Evidence& evidence, const Sides& sides);

// A linear module's output, or the gradient of its input, as a sum over the addends of the ranks
// that hold its weight, computed again from the candidate's own records at sampled places.
[[nodiscard]] Hypotheses find_linear_addends(const Evidence& evidence, const Sides& sides);

// A gradient norm that leaves a class of parameters out, is not summed over some axes, or counts
// copies.
[[nodiscard]] Hypotheses find_local_norm(const Evidence& evidence);

// A few slices along one dimension, or a few rows, carry the whole error.
[[nodiscard]] Hypotheses find_localised(const Evidence& evidence, const Sides& sides);

// A mean loss that is another sum or mean of the candidate's own losses of tokens.
[[nodiscard]] Hypotheses find_loss_rule(const Evidence& evidence, const Sides& sides);

// Rows of experts' inputs that the reference gives to another expert.
[[nodiscard]] Hypotheses find_misrouted_rows(const Evidence& evidence);

// An FP8 scale that only one side has.
[[nodiscard]] Hypotheses find_missing_scale(const Evidence& evidence);

// c = r + n x the module's bias; or, without its bias, c = a r.
[[nodiscard]] Hypotheses find_multiple_of_bias(const Evidence& evidence, const Sides& sides);

// NaN and Inf that only one side has.
[[nodiscard]] Hypotheses find_non_finite(const Evidence& evidence);

// State of the optimizer that the candidate does not have.
[[nodiscard]] Hypotheses find_not_stepped(const Evidence& evidence);

// AdamW's weight decay and step, or beta and the gradient's factor, fitted to each side's records.
[[nodiscard]] Hypotheses find_optimizer(const Evidence& evidence, const Sides& sides);

// Equal blocks, slices or rows, each another one of the reference; in an order of every rank's own;
// or all of them some places further on.
[[nodiscard]] Hypotheses find_order(const Evidence& evidence, const Sides& sides);

// A weight's gradient made from another layer's or micro-batch's input, or from one that was read
// in another order.
[[nodiscard]] Hypotheses find_other_operand(const Evidence& evidence, const Sides& sides);

// What the reference has in another layer or for another micro-batch.
[[nodiscard]] Hypotheses find_other_place(const Evidence& evidence, const Sides& sides);

// A weight's gradient without one of the weight's uses, or with one too many.
[[nodiscard]] Hypotheses find_other_use(const Evidence& evidence, const Sides& sides);

// An activation or a norm computed again as another one of its family.
[[nodiscard]] Hypotheses find_other_variant(const Evidence& evidence, const Sides& sides);

// Queries or keys turned by other positions, with another base, or in other pairs.
[[nodiscard]] Hypotheses find_positions(const Evidence& evidence, const Sides& sides);

// Numbers of a lower format on one side alone, which is all that the error is.
[[nodiscard]] Hypotheses find_precision(const Evidence& evidence, const Sides& sides);

// Parts of several ranks, each a multiple of the reference's; of an update, those of its moment.
[[nodiscard]] Hypotheses find_rank_factors(const Evidence& evidence);

// A recomputed value that is not the first one.
[[nodiscard]] Hypotheses find_recompute(const Evidence& evidence);

// Choices of experts beyond what round-off explains.
[[nodiscard]] Hypotheses find_routing_flip(const Evidence& evidence);

// Rows, each a multiple of the reference's.
[[nodiscard]] Hypotheses find_row_factors(const Evidence& evidence, const Sides& sides);

// Data, or parameters of the first step, that differ.
[[nodiscard]] Hypotheses find_source(const Evidence& evidence, const Sides& sides);

// A record that equals, byte for byte, what the same rank recorded before, or a parameter of which
// some elements do.
[[nodiscard]] Hypotheses find_stale(const Evidence& evidence);

// The reference with its dimensions in another order.
[[nodiscard]] Hypotheses find_transposed(const Evidence& evidence);

// Rounding of one sign.
[[nodiscard]] Hypotheses find_truncation(const Evidence& evidence, const Sides& sides);

// Copies that differ and add up to the reference.
[[nodiscard]] Hypotheses find_unsummed_copies(const Evidence& evidence);

// A run of slices that is zero, or what the buffer held before.
[[nodiscard]] Hypotheses find_untouched_block(const Evidence& evidence, const Sides& sides);

}  // namespace ttrace
