"""Silent bugs of Megatron-core that are planted from outside, each after one of its history or of its kind."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
from catalogue import Bug

_FINALIZE = "megatron.core.distributed.finalize_model_grads"  # the package has a function of that name


def _is_rank(rank: int) -> bool:
    return int(os.environ.get("RANK", "0")) == rank


def _replace(owner: Any, name: str, make: Callable) -> None:
    setattr(owner, name, make(getattr(owner, name)))


# --- multi-token prediction --------------------------------------------------------------------------


def _labels_rolled_too_far() -> None:
    from megatron.core.models.gpt import gpt_model
    from megatron.core.transformer.multi_token_prediction import roll_tensor

    def make_roll(own):
        def roll(tensor, *args, **kwargs):
            rolled, total = own(tensor, *args, **kwargs)
            if tensor.is_floating_point() or not _is_rank(1):  # a mask
                return rolled, total
            return own(rolled, *args, **kwargs)

        return roll

    def make_loss(own):
        def loss(*args, labels, **kwargs):
            return own(*args, labels=roll_tensor(labels)[0] if _is_rank(1) else labels, **kwargs)

        return loss

    if hasattr(gpt_model, "process_mtp_loss"):  # newer versions roll there
        _replace(gpt_model, "process_mtp_loss", make_loss)
    else:
        _replace(gpt_model, "roll_tensor", make_roll)


def _scale_without_microbatches() -> None:
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    own = MTPLossAutoScaler.set_loss_scale
    MTPLossAutoScaler.set_loss_scale = staticmethod(lambda scale: own(torch.ones_like(scale)))


def _embedding_of_unrolled_tokens() -> None:
    from megatron.core.transformer import multi_token_prediction as module

    def make(own):
        def roll(tensor, *args, **kwargs):
            rolled, total = own(tensor, *args, **kwargs)  # the other rank waits for this one
            return (tensor, total) if _is_rank(1) else (rolled, total)

        return roll

    _replace(module, "roll_tensor", make)


# --- context parallelism -----------------------------------------------------------------------------


def _rotary_table_in_halves() -> None:
    from megatron.core.models.common.embeddings import rotary_pos_embedding as module

    def halves(table, dim, group):
        return table.chunk(group.size(), dim)[group.rank()]

    module.get_pos_emb_on_this_cp_rank = halves


def _loss_over_own_positions() -> None:
    import train

    own = train.over_positions
    train.over_positions = lambda value: value if value.dim() == 0 and not value.requires_grad else own(value)


def _key_gradients_of_own_queries() -> None:
    import gathered_attention

    positions = gathered_attention.positions

    def backward(ctx, gradient):
        return gradient[positions(ctx.length, ctx.group.rank(), ctx.group.size())], None

    gathered_attention._Gather.backward = staticmethod(backward)


def _mask_in_halves() -> None:
    import gathered_attention

    def forward(self, query, key, value, attention_mask, *args, **options):
        key, value = (gathered_attention._Gather.apply(tensor, self.cp_group) for tensor in (key, value))
        rows = torch.arange(key.shape[0]).chunk(self.cp_group.size())[self.cp_group.rank()]
        core = super(gathered_attention.GatheredAttention, self).forward
        return core(query, key, value, attention_mask[:, :, rows], *args, **options)

    gathered_attention.GatheredAttention.forward = forward


# --- multi-head latent attention ---------------------------------------------------------------------


def _latent_norm_not_summed() -> None:
    module = importlib.import_module(_FINALIZE)

    def make(own):
        def reduce(model, config, tp_group=None):
            skipped = [
                parameter
                for chunk in model
                for name, parameter in chunk.named_parameters()
                if "kv_layernorm" in name
            ]
            for parameter in skipped:
                parameter.sequence_parallel = False
            own(model, config, tp_group)
            for parameter in skipped:
                parameter.sequence_parallel = True

        return reduce

    _replace(module, "_allreduce_non_tensor_model_parallel_grads", make)


def _query_latents_of_one_rank() -> None:
    from megatron.core.transformer import multi_latent_attention as module

    own = module.gather_from_tensor_model_parallel_region
    width = {"query": None}

    def gathered(tensor, *args, **kwargs):
        result = own(tensor, *args, **kwargs)
        if width["query"] is None:
            width["query"] = result.shape[-1]
        if result.shape[-1] != width["query"]:  # of keys and values
            return result
        first = result.chunk(2, -1)[0]
        return torch.cat((first, first), -1)

    module.gather_from_tensor_model_parallel_region = gathered


# --- experts -----------------------------------------------------------------------------------------


def _tokens_unpermuted_by_the_permutation() -> None:
    from megatron.core.transformer.moe import token_dispatcher as module

    def make(own):
        def unpermute(tokens, indices, *args, **kwargs):
            # A permutation that draws nothing: what the candidate alone draws is a difference of its own.
            return own(tokens, indices.flip(0), *args, **kwargs)

        return unpermute

    _replace(module, "unpermute", make)


def _chunks_sorted_by_rank() -> None:
    from megatron.core.transformer.moe import token_dispatcher as module

    def make(own):
        def sort(tensor, sizes, order, probs=None, **kwargs):
            if probs is None:
                return own(tensor, sizes, order, probs=probs, **kwargs)
            _, sorted_probs = own(tensor, sizes, order, probs=probs, **kwargs)
            return tensor.clone(), sorted_probs  # as they came

        return sort

    _replace(module, "sort_chunks_by_idxs", make)


def _shared_expert_added_twice() -> None:
    """As if it were added before a sum over two ranks, which then holds it once per rank."""
    from megatron.core.transformer.moe.moe_layer import MoELayer

    def make(own):
        def postprocess(self, output, shared):
            return own(self, output, None if shared is None else 2 * shared)

        return postprocess

    _replace(MoELayer, "postprocess", make)


def _bias_by_local_counts() -> None:
    def update(counts, bias, rate):
        average = counts.sum(-1, keepdim=True) / counts.shape[-1]
        return bias + torch.sign(average - counts) * rate

    importlib.import_module(_FINALIZE).get_updated_expert_bias = update


# --- sequence parallelism ----------------------------------------------------------------------------


def _embeddings_scattered_to_the_other_rank() -> None:
    from megatron.core.tensor_parallel import layers

    def make(own):
        def scatter(tensor, *args, **kwargs):
            return own(tensor.roll(tensor.shape[0] // 2, 0), *args, **kwargs)

        return scatter

    _replace(layers, "reduce_scatter_to_sequence_parallel_region", make)


# --- delayed weight gradients ------------------------------------------------------------------------


def _late_gradients_from_the_next_microbatch() -> None:
    import delayed_weight_gradients as module

    def compute() -> None:
        by_weight: dict[int, list] = {}
        for weight, given, gradient in module.kept:
            by_weight.setdefault(id(weight), []).append((weight, given, gradient))
        for entries in by_weight.values():
            given = [entry[1] for entry in entries]
            is_last = getattr(entries[0][0], "_is_mixed", False)
            for (weight, own, gradient), other in zip(entries, given[1:] + given[:1]):
                module.add(weight, other if is_last else own, gradient)
        module.kept.clear()

    own = module.train.build

    def build():
        chunks, optimizer = own()
        for chunk in chunks:
            for name, parameter in chunk.named_parameters():
                parameter._is_mixed = name.endswith("layers.1.mlp.linear_fc1.weight")
        return chunks, optimizer

    module.train.build = build
    module.compute_kept = compute


def _late_gradients_of_the_last_microbatch_lost() -> None:
    import delayed_weight_gradients as module

    own = module.compute_kept

    def compute() -> None:
        del module.kept[-(len(module.kept) // 4) :]
        own()

    module.compute_kept = compute


# --- activation offload ------------------------------------------------------------------------------


def _stale_buffer_reloaded() -> None:
    from megatron.core.pipeline_parallel.fine_grained_activation_offload import ChunkOffloadHandler

    kept: dict[tuple, torch.Tensor] = {}

    def make(own):
        def pop(self, tag):
            tensor = own(self, tag)
            if self.offload_groups[tag[0] - 1]._name != "attn_norm" or tag[0] > 1:  # the first layer's
                return tensor
            return kept.setdefault((tag, tensor.shape), tensor.clone())  # of the first micro-batch

        return pop

    _replace(ChunkOffloadHandler, "tensor_pop", make)


# --- FP16 --------------------------------------------------------------------------------------------


def _unscaled_twice() -> None:
    from megatron.core.optimizer.optimizer import MixedPrecisionOptimizer

    def make(own):
        def unscale(self):
            own(self)
            return own(self)

        return unscale

    _replace(MixedPrecisionOptimizer, "_unscale_main_grads_and_check_for_nan", make)


def _one_gradient_not_unscaled() -> None:
    from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params

    def make(own):
        def collect(self):
            return own(self)[1:]

        return collect

    _replace(Float16OptimizerWithFloat16Params, "_collect_main_grad_data_for_unscaling", make)


def _overflow_of_one_rank() -> None:
    """Rank 1 believes that its gradients overflowed, and nobody tells the others: it skips the step."""
    from megatron.core.optimizer.optimizer import MixedPrecisionOptimizer

    def make(own):
        def unscale(self):
            return own(self) or _is_rank(1)

        return unscale

    _replace(MixedPrecisionOptimizer, "_unscale_main_grads_and_check_for_nan", make)


# fmt: off
BUGS: list[Bug] = [
    Bug("mtp-labels-rolled-too-far", "mtp", "tp2", "rank 1 predicts the token after the next one",
        r"s0/m0/grad_output/output_layer/0", _labels_rolled_too_far, ("localised",), ("rank 1",)),
    Bug("mtp-scale-without-microbatches", "mtp", "pp2", "the further loss is not divided by the number of micro-batches",
        r"s0/m0/grad_output/output_layer/0", _scale_without_microbatches, ("wrong_factor",), ("factor 4",)),
    Bug("mtp-tokens-not-rolled", "mtp", "cp2", "rank 1 embeds the tokens that it has, not the next ones",
        r"s0/m0/output/mtp\.layers\.0\.embedding\.word_embeddings/0", _embedding_of_unrolled_tokens,
        ("localised", "shifted"), ("rank 1",)),
    Bug("cp-rotary-table-in-halves", "gpt", "cp2", "ranks take halves of the rotary table, not chunks from either end",
        r"s0/m0/output/rotary_pos_emb/0", _rotary_table_in_halves, ("wrong_order", "wrong_view")),
    Bug("cp-loss-over-own-positions", "gpt", "cp2", "ranks divide the loss by the number of their own tokens",
        r"s0/m0/grad_output/loss/0", _loss_over_own_positions, ("wrong_factor", "loss_normalisation"), ("factor 2",)),
    Bug("cp-key-gradients-of-own-queries", "gpt", "cp2", "gradients of gathered keys are not summed over the ranks",
        r"s0/m0/grad_input/decoder\.layers\.3\.self_attention\.core_attention/1", _key_gradients_of_own_queries,
        ("missing_reduction", "attention"), ("axis cp",)),
    Bug("cp-mask-in-halves", "gpt", "tp2 sp cp2", "ranks mask as if their positions were a half of the sequence",
        r"s0/m0/output/decoder\.layers\.0\.self_attention\.core_attention\.scale_mask_softmax/0", _mask_in_halves,
        ("attention", "localised")),
    Bug("latent-norm-not-summed", "latent", "tp2 sp", "gradients of the latents' norm stay one rank's addends",
        r"s0/main_grad/decoder\.layers\.0\.self_attention\.kv_layernorm\.weight/0", _latent_norm_not_summed,
        ("missing_reduction",), ("axis tp",)),
    Bug("latent-queries-of-one-rank", "latent", "tp2", "the gathered latents of queries are the first rank's, twice",
        r"s0/m0/input/decoder\.layers\.0\.self_attention\.q_layernorm/0", _query_latents_of_one_rank,
        ("localised", "duplicated_block")),
    Bug("expert-tokens-unpermuted", "experts", "ep2", "what experts return is put back in another order",
        r"s0/m0/output/decoder\.layers\.0\.mlp/0", _tokens_unpermuted_by_the_permutation, ("wrong_order", "")),
    Bug("expert-chunks-not-sorted", "experts", "ep2", "received tokens are not sorted by expert",
        r"s0/m0/input/decoder\.layers\.0\.mlp\.experts\.local_experts\.1/0", _chunks_sorted_by_rank,
        ("wrong_order", "localised")),
    Bug("shared-expert-twice", "experts", "tp2 sp", "the shared expert's output counts twice",
        r"s0/m0/output/decoder\.layers\.0\.mlp/0", _shared_expert_added_twice, ("", "wrong_addends", "localised")),
    Bug("expert-bias-by-local-counts", "latent experts mtp", "ep2", "ranks balance experts by their own tokens",
        r"s1/m0/routing/decoder\.layers\.3\.mlp\.router/0", _bias_by_local_counts, ("routing_flip",),
        redeclared="layer 0 was declared: there, the first rank's counts ask for the same biases as all counts do"),
    Bug("embeddings-scattered-wrongly", "mtp", "tp2 sp", "each rank gets the positions of the other one",
        r"s0/m0/output/embedding\.word_embeddings/0", _embeddings_scattered_to_the_other_rank,
        ("wrong_order", "shifted")),
    Bug("late-gradients-from-another-microbatch", "delayed", "tp2 sp",
        "one weight's late gradients are made from the next micro-batch's input",
        r"s0/main_grad/decoder\.layers\.1\.mlp\.linear_fc1\.weight/0", _late_gradients_from_the_next_microbatch,
        ("", "localised")),
    Bug("late-gradients-lost", "delayed", "tp2 sp", "late gradients of the last micro-batch are not computed",
        r"s0/main_grad/decoder\.layers\.0\.self_attention\.linear_proj\.weight/0",
        _late_gradients_of_the_last_microbatch_lost, ("missing_microbatch", "wrong_addends"), ("microbatch 3",)),
    Bug("stale-activation-reloaded", "offload", "tp2 sp", "what a norm saved is reloaded from the first micro-batch",
        r"s0/m1/param_grad/decoder\.layers\.0\.input_layernorm\.weight/0", _stale_buffer_reloaded, ("stale", "")),
    Bug("fp16-unscaled-twice", "gpt", "tp2, another loss scale", "gradients are divided by the loss scale twice",
        r"s0/main_grad/embedding\.word_embeddings\.weight/0", _unscaled_twice, ("wrong_factor",),
        ("factor 1.53e-05",), precision="f16"),
    Bug("fp16-one-gradient-scaled", "gpt", "tp2, another loss scale", "the first parameter's gradient keeps the scale",
        r"s0/main_grad/embedding\.word_embeddings\.weight/0", _one_gradient_not_unscaled, ("wrong_factor",),
        ("factor 6.55e+04",), precision="f16"),
    Bug("fp16-step-skipped-by-one-rank", "gpt", "dp2", "rank 1 alone sees an overflow and skips the step",
        r"s0/master/embedding\.word_embeddings\.weight/0", _overflow_of_one_rank, ("stale", "replicas_diverge"),
        ("rank 1",), precision="f16"),
]
