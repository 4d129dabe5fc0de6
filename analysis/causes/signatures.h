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

// What a failed check claims from the numbers that it was made of.
[[nodiscard]] Hypotheses find_claimed(const Evidence& evidence);

// Copies differ; this says no more.
[[nodiscard]] Hypotheses find_diverged_copies(const Evidence& evidence);

// Different parts of one tensor, equal on several ranks where the reference's differ.
[[nodiscard]] Hypotheses find_duplicated_part(const Evidence& evidence, const Sides& sides);

// c = r + a x what the tensor's buffer held before, or the gradient of an auxiliary loss.
[[nodiscard]] Hypotheses find_extra_addend(const Evidence& evidence, const Sides& sides);

// The magnitude and the format that each side's FP8 scale was made from; scales and histories of
// ranks whose largest are the reference's; a scale that only one side has.
[[nodiscard]] Hypotheses find_fp8_scale(const Evidence& evidence);

// A main gradient as a sum over the parameter's gradients per micro-batch and addend, by least
// squares for each rank that holds it.
[[nodiscard]] Hypotheses find_gradient_addends(const Evidence& evidence);

// A layer that the candidate has only under another number, or that two stages claim.
[[nodiscard]] Hypotheses find_layer_number(const Evidence& evidence);

// A linear module's output, or the gradient of its input, as a sum over the addends of the ranks
// that hold its weight, computed again from the candidate's own records at sampled places.
[[nodiscard]] Hypotheses find_linear_addends(const Evidence& evidence, const Sides& sides);

// A gradient norm that leaves a class of parameters out, is not summed over some axes, or counts
// copies.
[[nodiscard]] Hypotheses find_local_norm(const Evidence& evidence);

// A mean loss that is another sum or mean of the candidate's own losses of tokens.
[[nodiscard]] Hypotheses find_loss_rule(const Evidence& evidence, const Sides& sides);

// Rows of experts' inputs that the reference gives to another expert.
[[nodiscard]] Hypotheses find_misrouted_rows(const Evidence& evidence);

// c = a r; or the parts of ranks, or rows, are such multiples; of an update, those of its moment.
[[nodiscard]] Hypotheses find_multiple(const Evidence& evidence);

// c - r is one number, one number per row, one vector for all rows, a multiple of the module's
// bias, or rounding of one sign; without its bias c = a r.
[[nodiscard]] Hypotheses find_offset(const Evidence& evidence, const Sides& sides);

// AdamW's weight decay and step, or beta and the gradient's factor, fitted to each side's records;
// or state of the optimizer that the candidate does not have.
[[nodiscard]] Hypotheses find_optimizer(const Evidence& evidence);

// Equal blocks, slices or rows, each another one of the reference; in an order of every rank's own;
// or all of them some places further on.
[[nodiscard]] Hypotheses find_order(const Evidence& evidence, const Sides& sides);

// What the reference has in another layer or for another micro-batch.
[[nodiscard]] Hypotheses find_other_record(const Evidence& evidence, const Sides& sides);

// An activation or a norm computed again as another one of its family.
[[nodiscard]] Hypotheses find_other_variant(const Evidence& evidence, const Sides& sides);

// A few slices along one dimension, or a few rows, carry the whole error; only slices next to the
// edges between ranks' parts do; or a run of slices is zero, or what the buffer held before.
[[nodiscard]] Hypotheses find_place(const Evidence& evidence, const Sides& sides);

// Queries or keys turned by other positions, with another base, or in other pairs.
[[nodiscard]] Hypotheses find_positions(const Evidence& evidence, const Sides& sides);

// Numbers of a lower format on one side alone, which is all that the error is.
[[nodiscard]] Hypotheses find_precision(const Evidence& evidence, const Sides& sides);

// A normalisation over samples that takes every rank's own statistics (BatchNorm).
[[nodiscard]] Hypotheses find_rank_statistics(const Evidence& evidence, const Sides& sides);

// A record that equals, byte for byte, what the same rank recorded before, or a parameter of which
// some elements do.
[[nodiscard]] Hypotheses find_stale(const Evidence& evidence);

// What the symptom itself names: NaN and Inf, choices of experts, a recomputed value that is not
// the first one, data or first parameters that differ.
[[nodiscard]] Hypotheses find_symptom(const Evidence& evidence);

// The reference with its dimensions in another order.
[[nodiscard]] Hypotheses find_transposed(const Evidence& evidence);

// Copies that differ and add up to the reference.
[[nodiscard]] Hypotheses find_unsummed_copies(const Evidence& evidence);

// A weight's gradient made from another layer's or micro-batch's input, from one that was read in
// another order, or without one of the weight's uses.
[[nodiscard]] Hypotheses find_weight_gradient(const Evidence& evidence, const Sides& sides);

}  // namespace ttrace
