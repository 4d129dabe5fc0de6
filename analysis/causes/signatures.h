// The hypotheses, one function each, in alphabetical order: their order means nothing.
//
// Each returns nothing where it does not apply, where records are missing, or where it leaves more
// of the error than Evidence::tolerance() allows. c is the candidate's tensor, r the reference's.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/common/hypothesis.h"

#include <optional>

namespace ttrace {

// Attention computed again from recorded inputs with another scale or mask, or with other keys of
// other ranks' parts.
[[nodiscard]] std::optional<Hypothesis> find_attention(const Evidence& evidence);

// A gradient of router scores with the gradient of an auxiliary loss in it once too often, or not
// at all.
[[nodiscard]] std::optional<Hypothesis> find_auxiliary_gradient(const Evidence& evidence);

// Only slices next to the edges between ranks' parts are wrong.
[[nodiscard]] std::optional<Hypothesis> find_boundary(const Evidence& evidence);

// c - r is one number, one number per row, or one vector for all rows.
[[nodiscard]] std::optional<Hypothesis> find_constant_bias(const Evidence& evidence);

// Copies differ; this says no more.
[[nodiscard]] std::optional<Hypothesis> find_diverged_copies(const Evidence& evidence);

// Different parts of one tensor, equal on several ranks where the reference's differ.
[[nodiscard]] std::optional<Hypothesis> find_duplicated_part(const Evidence& evidence);

// c = a r.
[[nodiscard]] std::optional<Hypothesis> find_factor(const Evidence& evidence);

// An update whose first moment is a multiple of the reference's.
[[nodiscard]] std::optional<Hypothesis> find_factor_of_moment(const Evidence& evidence);

// The magnitude and the format that each side's scale was made from.
[[nodiscard]] std::optional<Hypothesis> find_fp8_amax(const Evidence& evidence);

// A scale that is the reference's, over the largest number of another format.
[[nodiscard]] std::optional<Hypothesis> find_fp8_format(const Evidence& evidence);

// Scales or histories of ranks whose largest are the reference's.
[[nodiscard]] std::optional<Hypothesis> find_fp8_own_parts(const Evidence& evidence);

// A main gradient as a sum over the parameter's gradients per micro-batch and addend, by least
// squares for each rank that holds it.
[[nodiscard]] std::optional<Hypothesis> find_gradient_addends(const Evidence& evidence);

// A parameter of which some elements kept their old values.
[[nodiscard]] std::optional<Hypothesis> find_kept_elements(const Evidence& evidence);

// A layer that the candidate has only under another number, or that two stages claim.
[[nodiscard]] std::optional<Hypothesis> find_layer_number(const Evidence& evidence);

// c = r + a x what the tensor's buffer held before.
[[nodiscard]] std::optional<Hypothesis> find_leftover(const Evidence& evidence);

// A linear module's output, or the gradient of its input, as a sum over the addends of the ranks
// that hold its weight, computed again from the candidate's own records at sampled places.
[[nodiscard]] std::optional<Hypothesis> find_linear_addends(const Evidence& evidence);

// A few slices along one dimension, or a few rows, carry the whole error.
[[nodiscard]] std::optional<Hypothesis> find_localised(const Evidence& evidence);

// A mean loss that is another sum or mean of the candidate's own losses of tokens.
[[nodiscard]] std::optional<Hypothesis> find_loss_rule(const Evidence& evidence);

// Rows of experts' inputs that the reference gives to another expert.
[[nodiscard]] std::optional<Hypothesis> find_misrouted_rows(const Evidence& evidence);

// An FP8 scale that only one side has.
[[nodiscard]] std::optional<Hypothesis> find_missing_scale(const Evidence& evidence);

// AdamW's beta and the gradient's factor, fitted to each side's own moments.
[[nodiscard]] std::optional<Hypothesis> find_moment(const Evidence& evidence);

// NaN and Inf that only one side has.
[[nodiscard]] std::optional<Hypothesis> find_non_finite(const Evidence& evidence);

// A gradient norm that is not summed over some axes, or that counts copies.
[[nodiscard]] std::optional<Hypothesis> find_norm_of_part(const Evidence& evidence);

// A gradient norm that leaves a class of parameters out.
[[nodiscard]] std::optional<Hypothesis> find_norm_without(const Evidence& evidence);

// State of the optimizer that the candidate does not have.
[[nodiscard]] std::optional<Hypothesis> find_not_stepped(const Evidence& evidence);

// Equal blocks along one dimension, each another block of the reference.
[[nodiscard]] std::optional<Hypothesis> find_order_of_blocks(const Evidence& evidence);

// The same of what every rank holds, in an order of its own.
[[nodiscard]] std::optional<Hypothesis> find_order_of_parts(const Evidence& evidence);

// Slices of any number, or rows, each another one of the reference.
[[nodiscard]] std::optional<Hypothesis> find_order_of_rows(const Evidence& evidence);

// An activation computed again as another one of its family.
[[nodiscard]] std::optional<Hypothesis> find_other_activation(const Evidence& evidence);

// What the reference has in another layer.
[[nodiscard]] std::optional<Hypothesis> find_other_layer(const Evidence& evidence);

// What the reference has for another micro-batch.
[[nodiscard]] std::optional<Hypothesis> find_other_microbatch(const Evidence& evidence);

// A norm computed again as another one of its family.
[[nodiscard]] std::optional<Hypothesis> find_other_norm(const Evidence& evidence);

// A weight's gradient made from another layer's or micro-batch's input.
[[nodiscard]] std::optional<Hypothesis> find_other_operand(const Evidence& evidence);

// Queries or keys turned by other positions.
[[nodiscard]] std::optional<Hypothesis> find_other_positions(const Evidence& evidence);

// A weight's gradient made from an input that was read in another order.
[[nodiscard]] std::optional<Hypothesis> find_other_reading(const Evidence& evidence);

// Queries or keys turned with another base or in other pairs.
[[nodiscard]] std::optional<Hypothesis> find_other_rotation(const Evidence& evidence);

// A weight's gradient without one of the weight's uses, or with one too many.
[[nodiscard]] std::optional<Hypothesis> find_other_use(const Evidence& evidence);

// Numbers of a lower format on one side alone, which is all that the error is.
[[nodiscard]] std::optional<Hypothesis> find_precision(const Evidence& evidence);

// Parts of several ranks, each a multiple of the reference's.
[[nodiscard]] std::optional<Hypothesis> find_rank_factors(const Evidence& evidence);

// A recomputed value that is not the first one.
[[nodiscard]] std::optional<Hypothesis> find_recompute(const Evidence& evidence);

// c = r + n x the module's bias.
[[nodiscard]] std::optional<Hypothesis> find_repeated_bias(const Evidence& evidence);

// Without its bias, c = a r.
[[nodiscard]] std::optional<Hypothesis> find_repeated_sum(const Evidence& evidence);

// Choices of experts beyond what round-off explains.
[[nodiscard]] std::optional<Hypothesis> find_routing_flip(const Evidence& evidence);

// Rows, each a multiple of the reference's.
[[nodiscard]] std::optional<Hypothesis> find_row_factors(const Evidence& evidence);

// Slices of the reference, some places further on.
[[nodiscard]] std::optional<Hypothesis> find_shift(const Evidence& evidence);

// Data, or parameters of the first step, that differ.
[[nodiscard]] std::optional<Hypothesis> find_source(const Evidence& evidence);

// A record that equals, byte for byte, what the same rank recorded before.
[[nodiscard]] std::optional<Hypothesis> find_stale(const Evidence& evidence);

// The reference with its dimensions in another order.
[[nodiscard]] std::optional<Hypothesis> find_transposed(const Evidence& evidence);

// Rounding of one sign.
[[nodiscard]] std::optional<Hypothesis> find_truncation(const Evidence& evidence);

// Copies that differ and add up to the reference.
[[nodiscard]] std::optional<Hypothesis> find_unsummed_copies(const Evidence& evidence);

// A run of slices that is zero, or what the buffer held before.
[[nodiscard]] std::optional<Hypothesis> find_untouched_block(const Evidence& evidence);

// AdamW's weight decay and step, fitted to each side's own records.
[[nodiscard]] std::optional<Hypothesis> find_update(const Evidence& evidence);

}  // namespace ttrace
