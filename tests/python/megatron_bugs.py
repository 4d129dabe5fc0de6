"""Silent bugs of Megatron-style training, put into megatron-core 0.16.1 from outside, one at a time.

    torchrun --nproc-per-node 2 megatron_bugs.py NAME [options of examples/megatron_core/train.py]

`BUGS` says for each its layout and where the first divergence is expected; both were declared before the
first run. Two more are in the package itself and need no patch: see test_megatron_bugs.py.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "megatron_core"))


@dataclass(frozen=True)
class Bug:
    what: str
    ranks: int
    options: str  # of the candidate
    expected: str  # regular expression found in the id of the first divergence
    common: str = ""  # options of both runs
    apply: Callable[[], None] = lambda: None


def _replace(owner, name: str, make: Callable) -> None:
    setattr(owner, name, make(getattr(owner, name)))


# --- reductions of gradients -------------------------------------------------------------------------


def _norm_gradients_not_summed() -> None:
    # The package has a function of the same name.
    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")

    module._allreduce_non_tensor_model_parallel_grads = lambda *args, **kwargs: None


def _norm_gradients_averaged() -> None:
    # The package has a function of the same name.
    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")

    def averaged(own):
        def call(model, config, tp_group):
            own(model, config, tp_group)
            for chunk in model:
                for parameter in chunk.parameters():
                    if getattr(parameter, "sequence_parallel", False):
                        parameter.main_grad.div_(tp_group.size())

        return call

    _replace(module, "_allreduce_non_tensor_model_parallel_grads", averaged)


def _tied_embedding_not_reduced() -> None:
    # The package has a function of the same name.
    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")

    module._allreduce_word_embedding_grads = lambda *args, **kwargs: None


def _scaled_by_one(buffers: str, groups: str) -> None:
    """The buffers, and the buckets of the groups, of these attributes of every wrapped model."""
    import megatron.core.distributed.distributed_data_parallel as module

    def unscaled(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            buckets = [bucket for group in getattr(self, groups) for bucket in group.buckets]
            for scaled in [*getattr(self, buffers), *buckets]:
                scaled.gradient_scaling_factor = 1.0

        return init

    _replace(module.DistributedDataParallel, "__init__", unscaled)


def _gradients_not_averaged_over_dp() -> None:
    _scaled_by_one("buffers", "bucket_groups")


def _expert_gradients_not_scaled() -> None:
    _scaled_by_one("expert_parallel_buffers", "expert_parallel_bucket_groups")


def _tokens_sent_to_their_neighbours_experts() -> None:
    from megatron.core.transformer.moe.router import TopKRouter

    def shifted(own):
        def routing(self, logits, *args, **kwargs):
            return own(self, logits.roll(1, 0) if self.layer_number == 2 else logits, *args, **kwargs)

        return routing

    _replace(TopKRouter, "routing", shifted)


def _gradients_kept_between_steps() -> None:
    import megatron.core.distributed.distributed_data_parallel as module

    def kept(own):
        calls = []

        def zero(self):
            calls.append(self)
            if len(calls) == 1:
                own(self)
                return
            for buffer in self.buffers:
                for parameter in buffer.params:
                    parameter.grad_added_to_main_grad = False
            for group in self.bucket_groups:
                group.reset()

        return zero

    _replace(module.DistributedDataParallel, "zero_grad_buffer", kept)


def _token_count_of_one_rank() -> None:
    """Per-token loss: every rank divides by its own number of tokens."""
    import megatron.core.distributed.distributed_data_parallel as module
    from megatron.core import parallel_state

    def wrong(own):
        def scale(self, factor):
            rank = parallel_state.get_data_parallel_rank()
            own(self, factor * (1.0 + 0.1 * rank))

        return scale

    _replace(module.DistributedDataParallel, "scale_gradients", wrong)


# --- losses ------------------------------------------------------------------------------------------


def _loss_not_divided_by_microbatches() -> None:
    import inspect

    import megatron.core.pipeline_parallel.schedules as module

    def wrong(own):
        def call(*args, **kwargs):
            bound = inspect.signature(own).bind(*args, **kwargs)
            bound.arguments["num_microbatches"] = 1
            return own(*bound.args, **bound.kwargs)

        return call

    _replace(module, "forward_step_calc_loss", wrong)


def _auxiliary_loss_scale_dropped() -> None:
    from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler

    def wrong(own):
        return staticmethod(lambda scale: own(scale * 4.0))

    _replace(MoEAuxLossAutoScaler, "set_loss_scale", wrong)


def _softmax_sum_of_one_rank() -> None:
    """Cross entropy of a vocabulary that is cut: the exponentials are not summed over ranks."""
    import megatron.core.tensor_parallel.cross_entropy as module

    class Distributed:
        """torch.distributed, but for the third all-reduce of every loss."""

        calls = 0

        def __getattr__(self, name):
            return getattr(module.torch.distributed, name)

        def all_reduce(self, tensor, **kwargs):
            Distributed.calls += 1
            if Distributed.calls % 3 != 0:
                module._own_torch.distributed.all_reduce(tensor, **kwargs)

    class Torch:
        distributed = Distributed()

        def __getattr__(self, name):
            return getattr(module._own_torch, name)

    module._own_torch = module.torch
    Distributed.__getattr__ = lambda self, name: getattr(module._own_torch.distributed, name)
    module.torch = Torch()


# --- forward and its gradients -----------------------------------------------------------------------


def _vocabulary_mask_off_by_one() -> None:
    from megatron.core.tensor_parallel.layers import VocabParallelEmbedding

    def wrong(own):
        def forward(self, tokens):
            self.vocab_end_index -= 1
            try:
                return own(self, tokens)
            finally:
                self.vocab_end_index += 1

        return forward

    _replace(VocabParallelEmbedding, "forward", wrong)


def _row_parallel_output_not_summed(which: str) -> Callable[[], None]:
    def apply() -> None:
        import megatron.core.tensor_parallel.layers as layers

        def wrong(own):
            def forward(self, tensor):
                if not getattr(self, "_wrong", False):
                    return own(self, tensor)
                reduce = layers.reduce_from_tensor_model_parallel_region
                layers.reduce_from_tensor_model_parallel_region = lambda tensor, group=None: tensor
                try:
                    return own(self, tensor)
                finally:
                    layers.reduce_from_tensor_model_parallel_region = reduce

            return forward

        _replace(layers.RowParallelLinear, "forward", wrong)
        from megatron.core.transformer.transformer_layer import TransformerLayer

        def marked(own):
            def init(self, *args, **kwargs):
                own(self, *args, **kwargs)
                if self.layer_number == 2:
                    for name, module in self.named_modules():
                        if name.endswith(which):
                            module._wrong = True

            return init

        _replace(TransformerLayer, "__init__", marked)

    return apply


def _input_gradient_not_summed() -> None:
    """Column-parallel linears: the gradient of the input stays the addend of one rank."""
    import inspect

    import megatron.core.tensor_parallel.layers as layers

    def wrong(own):
        @functools.wraps(own)  # it keeps a mark on itself
        def call(*args, **kwargs):
            bound = inspect.signature(own).bind(*args, **kwargs)
            bound.arguments["allreduce_dgrad"] = False
            return own(*bound.args, **bound.kwargs)

        return call

    _replace(layers, "linear_with_grad_accumulation_and_async_allreduce", wrong)


def _sequence_gathered_in_wrong_order() -> None:
    import megatron.core.tensor_parallel.layers as layers

    def wrong(own):
        def gather(output, tensor, *args, **kwargs):
            result = own(output, tensor, *args, **kwargs)
            half = output.shape[0] // 2
            output.copy_(output.roll(half, 0))
            return result

        return gather

    _replace(layers, "dist_all_gather_func", wrong)


def _keys_and_values_swapped_on_one_rank() -> None:
    from megatron.core import parallel_state
    from megatron.core.transformer.attention import SelfAttention

    def wrong(own):
        def get(self, *args, **kwargs):
            query, key, value, *rest = own(self, *args, **kwargs)
            if self.layer_number == 2 and parallel_state.get_tensor_model_parallel_rank() == 1:
                key, value = value, key
            return (query, key, value, *rest)

        return get

    _replace(SelfAttention, "get_query_key_value_tensors", wrong)


def _softmax_scale_of_one_rank() -> None:
    from megatron.core import parallel_state
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    def wrong(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            if parallel_state.get_tensor_model_parallel_rank() == 1:
                self.softmax_scale *= 1.5

        return init

    _replace(DotProductAttention, "__init__", wrong)


def _recompute_from_the_first_input() -> None:
    """Every recomputed layer takes the input of the first one."""
    from megatron.core import tensor_parallel

    def wrong(own):
        first = {}

        def checkpoint(function, distribute, *args):
            import torch

            def recomputed(hidden, *rest):
                if torch.is_grad_enabled() and "hidden" in first:
                    hidden = first["hidden"].detach() * 1.0 + 0.0 * hidden
                return function(hidden, *rest)

            first.setdefault("hidden", args[0].detach().clone())
            return own(recomputed, distribute, *args)

        return checkpoint

    _replace(tensor_parallel, "checkpoint", wrong)


# --- optimizer ---------------------------------------------------------------------------------------


def _updated_parameters_not_gathered() -> None:
    from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBucketGroup

    _ParamAndGradBucketGroup.start_param_sync = lambda self, force_sync=False: None


def _clipped_by_local_norm() -> None:
    import megatron.core.optimizer.optimizer as module
    import torch

    def wrong(own):
        def norm(grads, norm_type=2, grad_stats_parallel_group=None):
            total = torch.stack([grad.float().norm() for grad in grads]).norm()
            return total.item()

        return norm

    _replace(module, "get_grad_norm_fp32", wrong)


def _optimizer_counts_one_step_too_many() -> None:
    import torch

    def wrong(own):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    if not state and parameter.grad is not None:
                        state["step"] = torch.tensor(1.0)
                        state["exp_avg"] = torch.zeros_like(parameter)
                        state["exp_avg_sq"] = torch.zeros_like(parameter)
            return own(self, closure)

        return step

    _replace(torch.optim.AdamW, "step", wrong)
    _replace(torch.optim.Adam, "step", lambda own: torch.optim.AdamW.step)


BUGS: dict[str, Bug] = {
    "norm-gradients-not-summed": Bug(
        "gradients of norms under sequence parallelism stay one rank's addends",
        2,
        "--tp 2 --sp",
        r"main_grad/.*layernorm",
        apply=_norm_gradients_not_summed,
    ),
    "norm-gradients-averaged": Bug(
        "gradients of norms under sequence parallelism are divided by the number of ranks",
        2,
        "--tp 2 --sp",
        r"main_grad/.*layernorm",
        apply=_norm_gradients_averaged,
    ),
    "tied-embedding-not-reduced": Bug(
        "first and last stage keep their own gradient of the tied embedding",
        2,
        "--pp 2",
        r"main_grad/embedding\.word_embeddings\.weight",
        apply=_tied_embedding_not_reduced,
    ),
    "gradients-not-averaged-over-dp": Bug(
        "the buffers' scaling factor is 1 instead of 1/dp",
        2,
        "",
        r"main_grad/",
        apply=_gradients_not_averaged_over_dp,
    ),
    "expert-gradients-not-scaled": Bug(
        "the expert buffers' scaling factor is 1",
        2,
        "--ep 2",
        r"main_grad/.*local_experts",
        "--experts 4",
        _expert_gradients_not_scaled,
    ),
    "gradients-kept-between-steps": Bug(
        "buffers are not zeroed before the second step",
        2,
        "",
        r"s1/main_grad/",
        apply=_gradients_kept_between_steps,
    ),
    "token-count-of-one-rank": Bug(
        "with a loss per token, ranks divide by different numbers of tokens",
        2,
        "",
        r"main_grad/",
        "--per-token-loss",
        _token_count_of_one_rank,
    ),
    "loss-not-divided-by-microbatches": Bug(
        "the loss of a micro-batch is not divided by their number",
        2,
        "--tp 2",
        r"grad_output/",
        apply=_loss_not_divided_by_microbatches,
    ),
    "tokens-sent-to-their-neighbours-experts": Bug(
        "layer 1's router chooses by the scores of the token before",
        2,
        "--ep 2",
        r"(routing|output)/decoder\.layers\.1\.mlp\.router/",
        "--experts 4",
        _tokens_sent_to_their_neighbours_experts,
    ),
    "auxiliary-loss-scale-dropped": Bug(
        "the auxiliary loss is four times as large as it should be",
        2,
        "--ep 2",
        r"(grad|grad_output)/.*(router|pre_mlp_layernorm)",
        "--experts 4 --aux-loss 0.01",
        _auxiliary_loss_scale_dropped,
    ),
    "softmax-sum-of-one-rank": Bug(
        "the loss of a cut vocabulary sums exponentials of one rank only",
        2,
        "--tp 2",
        r"loss/",
        apply=_softmax_sum_of_one_rank,
    ),
    "vocabulary-mask-off-by-one": Bug(
        "a rank drops the last token of its part of the vocabulary",
        2,
        "--tp 2",
        r"output/embedding\.word_embeddings",
        apply=_vocabulary_mask_off_by_one,
    ),
    "attention-output-not-summed": Bug(
        "the second layer's linear_proj is not reduced",
        2,
        "--tp 2",
        r"output/decoder\.layers\.1\.self_attention\.linear_proj",
        apply=_row_parallel_output_not_summed("linear_proj"),
    ),
    "mlp-output-not-summed": Bug(
        "the second layer's linear_fc2 is not reduced",
        2,
        "--tp 2",
        r"output/decoder\.layers\.1\.mlp\.linear_fc2",
        apply=_row_parallel_output_not_summed("linear_fc2"),
    ),
    "input-gradient-not-summed": Bug(
        "gradients of inputs of column-parallel linears are not reduced",
        2,
        "--tp 2",
        r"grad_(output|input)/(decoder\.final_layernorm|output_layer)",
        apply=_input_gradient_not_summed,
    ),
    "sequence-gathered-in-wrong-order": Bug(
        "sequence shards are put together in the wrong order",
        2,
        "--tp 2 --sp",
        r"output/decoder\.layers\.0\.self_attention\.linear_qkv",
        apply=_sequence_gathered_in_wrong_order,
    ),
    "keys-and-values-swapped": Bug(
        "one rank swaps keys and values in the second layer",
        2,
        "--tp 2",
        r"put/decoder\.layers\.1\.self_attention\.core_attention",
        apply=_keys_and_values_swapped_on_one_rank,
    ),
    "softmax-scale-of-one-rank": Bug(
        "one rank scales attention scores by 1.5 too much",
        2,
        "--tp 2",
        r"decoder\.layers\.0\.self_attention\.core_attention",
        apply=_softmax_scale_of_one_rank,
    ),
    "recompute-from-the-first-input": Bug(
        "recomputed layers take the input of the first one",
        2,
        "--tp 2 --recompute full",
        r"(put|grad|grad_output)/decoder\.layers\.3",
        apply=_recompute_from_the_first_input,
    ),
    "updated-parameters-not-gathered": Bug(
        "the distributed optimizer's ranks do not get each other's updates",
        2,
        "--distributed-optimizer",
        r"param_next/",
        apply=_updated_parameters_not_gathered,
    ),
    "clipped-by-local-norm": Bug(
        "every rank clips by the norm of its own gradients",
        2,
        "--tp 2",
        r"scalar/grad_norm|exp_avg/",
        apply=_clipped_by_local_norm,
    ),
    "optimizer-counts-one-step-too-many": Bug(
        "bias correction of the second step in the first",
        2,
        "--tp 2",
        r"(master|param_next)/",
        apply=_optimizer_counts_one_step_too_many,
    ),
}


def main() -> None:
    name = sys.argv.pop(1)
    import train  # its options are ours; patches Megatron-core for CPUs first

    BUGS[name].apply()
    train.train()


if __name__ == "__main__":
    main()
