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

    def make(own):
        def roll(tensor, *args, **kwargs):
            rolled, total = own(tensor, *args, **kwargs)
            if tensor.is_floating_point() or not _is_rank(1):  # a mask
                return rolled, total
            return own(rolled, *args, **kwargs)

        return roll

    _replace(gpt_model, "roll_tensor", make)


def _scale_without_microbatches() -> None:
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    own = MTPLossAutoScaler.set_loss_scale
    MTPLossAutoScaler.set_loss_scale = staticmethod(lambda scale: own(torch.ones_like(scale)))


def _embedding_of_unrolled_tokens() -> None:
    from megatron.core.transformer import multi_token_prediction as module

    def make(own):
        def roll(tensor, *args, **kwargs):
            return (tensor, tensor.sum()) if _is_rank(1) else own(tensor, *args, **kwargs)

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
            return own(tokens, indices[torch.randperm(len(indices), generator=_fixed())], *args, **kwargs)

        return unpermute

    _replace(module, "unpermute", make)


def _fixed() -> torch.Generator:
    return torch.Generator().manual_seed(3)


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
    """Added before the sum over ranks, which therefore holds it once per rank."""
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
            if self.offload_groups[tag[0] - 1]._name != "mlp_norm" or tag[0] > 4:
                return tensor
            return kept.setdefault((tag, tensor.shape), tensor)  # of the first micro-batch

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


BUGS: list[Bug] = []
