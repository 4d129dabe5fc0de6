"""Bugs in torchtitan, and in what it uses of torch: FSDP2, DTensor, pipelining, checkpointing. Those with a number of
an issue or a change request were real ones there."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from catalogue import Bug


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _replace(owner, name: str, make) -> None:
    setattr(owner, name, make(getattr(owner, name)))


# --- FSDP2 -------------------------------------------------------------------------------------------


def _gradients_averaged() -> None:
    """The losses are divided by the tokens of all ranks already, and FSDP2 divides once more."""
    import torchtitan.distributed.fsdp as fsdp

    def dividing(own):
        def disable(model):
            own(model)
            for module in model.modules():
                if isinstance(module, fsdp.FSDPModule):
                    module.set_gradient_divide_factor(2.0)

        return disable

    _replace(fsdp, "disable_fsdp_gradient_division", dividing)


def _reduced_in_bf16() -> None:
    import torchtitan.distributed.fsdp as fsdp

    _replace(fsdp, "MixedPrecisionPolicy", lambda own: lambda **k: own(**{**k, "reduce_dtype": torch.bfloat16}))


def _tokens_of_rank() -> None:
    """torchtitan 2206: the sum of losses is divided by this rank's number of tokens."""
    import torchtitan.trainer as trainer

    trainer.dist_utils.dist_sum_tensor = lambda tensor, mesh: tensor


def _norm_gradient_of_one_shard() -> None:
    """The gradient of a norm's weight is a sum over the ranks of the sequence; FSDP2 takes it as it is."""
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    def local(own):
        def inner(self, grad):
            is_norm = self.is_dtensor and grad.dim() == 1 and "ffn_norm" in (self._param_fqn or "")
            return grad._local_tensor if is_norm else own(self, grad)

        return inner

    _replace(FSDPParam, "_get_grad_inner_tensor", local)


def _last_microbatch_alone() -> None:
    """Gradient accumulation in which every micro-batch but the last is thrown away: the step zeroes too late."""
    import train

    def forgetting(own):
        def step(self, **kwargs):
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            return own(self, **kwargs)

        return step

    _replace(train.Trainer, "forward_backward_step", forgetting)


# --- tensor parallelism ------------------------------------------------------------------------------


def _vocabulary_offset() -> None:
    """Loss parallelism: the second rank looks a label up one column before its own."""
    from torchtitan.components.loss import _LossParallelCrossEntropy

    def shifted(own):
        def apply(logits, labels, group, vocabulary, *rest):
            rank = dist.get_rank(group)
            start = rank * logits.shape[-1]
            return own(logits, torch.where(labels > start, labels - min(rank, 1), labels), group, vocabulary, *rest)

        return apply

    _replace(_LossParallelCrossEntropy, "apply", shifted)


def _max_of_shard() -> None:
    """The sum of exponentials is not added up over the shards of the vocabulary."""
    import torchtitan.components.loss as loss

    def local(own):
        def all_reduce(tensor, reduceOp, group):
            is_sum_of_exponentials = reduceOp == "SUM" and tensor.dtype == torch.float32 and bool((tensor >= 1).any())
            return tensor if is_sum_of_exponentials else own(tensor, reduceOp=reduceOp, group=group)

        return all_reduce

    class Collectives:
        all_reduce = staticmethod(local(loss.funcol.all_reduce))

    loss.funcol = Collectives


def _chunked_gradient_labelled_whole() -> None:
    """torchtitan 3412: the gradient of chunks is an addend, and goes on as if it were the sum."""
    from torch.distributed.tensor import DTensor, Replicate
    from torchtitan.components.loss import GradAccumulator

    def labelled(own):
        def result(self):
            gradient = own(self)
            if not isinstance(gradient, DTensor):
                return gradient
            return DTensor.from_local(gradient.to_local(), gradient.device_mesh, [Replicate()], run_check=False)

        return result

    _replace(GradAccumulator, "result", labelled)


def _rotated_one_further() -> None:
    """The second rank of the sequence begins to count positions at one."""
    from torchtitan.models.common.rope import ComplexRoPE

    def further(own):
        def reshape(self, query, positions=None):
            cache = own(self, query, positions)
            return torch.roll(cache, -1, 1) if _rank() == 1 else cache

        return reshape

    _replace(ComplexRoPE, "_reshape_cache", further)


def _embedding_mask_too_wide() -> None:
    """The second shard of the embedding also answers for the last tokens of the first."""
    from torchtitan.models.common.embedding import Embedding

    def greedy(own):
        def forward(self, input):
            found = own(self, input)
            if self.tp_group is None or dist.get_rank(self.tp_group) == 0:
                return found
            weight = self.weight.to_local()
            start = dist.get_rank(self.tp_group) * weight.shape[0]
            edge = (input < start) & (input >= start - 64)
            return found + edge.unsqueeze(-1).to(found.dtype) * weight[0]

        return forward

    _replace(Embedding, "forward", greedy)


def _rowwise_not_summed() -> None:
    """The plan says that the down-projection's output is whole, so nothing is added up."""
    import torchtitan.protocols.module as module
    from torch.distributed.tensor import DTensor, Replicate

    def whole(own):
        def redistribute(self, parallel_dims, outputs):
            is_down = isinstance(outputs, DTensor) and getattr(self, "bug_is_down", False)
            if is_down and outputs.placements[0].is_partial():
                outputs = DTensor.from_local(outputs.to_local(), outputs.device_mesh, [Replicate()], run_check=False)
            return own(self, parallel_dims, outputs)

        return redistribute

    def marked(own):
        def parallelize(self, parallel_dims):
            own(self, parallel_dims)
            for name, part in self.named_modules():
                part.bug_is_down = name.endswith("layers.1.feed_forward.w2")

        return parallelize

    import torchtitan.models.llama3.model as llama3

    _replace(module.Module, "_redistribute_outputs", _unchecked(whole))
    _replace(llama3.Llama3Model, "parallelize", marked)


def _unchecked(make):
    """`make` for a module whose output no longer has the placements that its plan declares."""

    def wrapped(own):
        def tolerant(self, parallel_dims, outputs):
            config = self._sharding_config
            if not getattr(self, "bug_is_down", False):
                return own(self, parallel_dims, outputs)
            source, config.out_src_shardings = config.out_src_shardings, None
            try:
                return own(self, parallel_dims, outputs)
            finally:
                config.out_src_shardings = source

        return make(tolerant)

    return wrapped


# --- pipelines ---------------------------------------------------------------------------------------


def _scaled_by_schedule() -> None:
    """torchtitan 1732: the schedule divides by the number of micro-batches what the loss has divided already."""
    import torchtitan.distributed.pipeline_parallel as pipeline

    def scaling(own):
        def build(**kwargs):
            schedule = own(**kwargs)
            schedule.scale_grads = True
            return schedule

        return build

    _replace(pipeline, "_build_pipeline_schedule", scaling)


def _weight_gradient_skipped() -> None:
    """A zero-bubble schedule forgets one weight phase: that of micro-batch 2 in the last stage."""
    from torch.distributed.pipelining import PipelineStage

    def skipping(own):
        def backward(self, chunk, last_backward=False):
            if self.is_last and chunk == 2:
                self.backward_state.pop(chunk)
                return None
            return own(self, chunk, last_backward=last_backward)

        return backward

    _replace(PipelineStage, "backward_weight_one_chunk", skipping)


def _chunks_swapped() -> None:
    """The second rank's chunks hold each other's layers."""
    import torchtitan.distributed.pipeline_parallel as pipeline

    def swapped(own):
        def generate(*args, **kwargs):
            parts = own(*args, **kwargs)
            parts[1], parts[2] = parts[2], parts[1]
            return parts

        return generate

    _replace(pipeline, "_generate_llm_fqn_per_model_part", swapped)


def _norm_of_stage() -> None:
    """torchtitan 596: gradients are clipped by the norm of this stage's alone."""
    import torchtitan.trainer as trainer

    _replace(trainer.dist_utils, "clip_grad_norm_", lambda own: lambda *a, **k: own(*a, **{**k, "pp_mesh": None}))


def _stale_activation() -> None:
    """The last stage takes the activation of the micro-batch before."""
    from torch.distributed.pipelining import PipelineStage

    kept = {}

    def received(own):
        def retrieve(self, chunk):
            values = own(self, chunk)
            before = kept.get(self.stage_index, values)
            kept[self.stage_index] = [value.detach().clone().requires_grad_() for value in values]
            return before if self.is_last and chunk == 3 else values

        return retrieve

    _replace(PipelineStage, "_retrieve_recv_activations", received)


# --- checkpointing -----------------------------------------------------------------------------------


def _recomputed_from_another_input() -> None:
    """What the second block recomputes from has been scaled in place since its forward."""
    import torchtitan.models.llama3.model as llama3

    def drifting(own):
        calls = {}

        def forward(self, x, *args, **kwargs):
            calls[id(self)] = calls.get(id(self), 0) + 1
            is_again = calls[id(self)] % 2 == 0 and getattr(self, "bug_number", 0) == 1
            return own(self, x * 1.01 if is_again else x, *args, **kwargs)

        return forward

    def numbered(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            for number, layer in enumerate(self.layers.values()):
                layer.bug_number = number

        return init

    _replace(llama3.Llama3TransformerBlock, "forward", drifting)
    _replace(llama3.Llama3Model, "__init__", numbered)


# --- experts -----------------------------------------------------------------------------------------


def _scores_of_next_token() -> None:
    """The experts' answers come back with the weight of the token before."""
    import torchtitan.models.common.moe as moe

    def rolled(own):
        # torchtitan reads the names of a module's inputs from this signature, and drops what it does not name.
        def forward(self, x_BLD, topk_scores_BLK, topk_expert_ids_BLK, num_local_tokens_per_expert_E):
            scores = torch.roll(topk_scores_BLK, 1, 1)
            return own(self, x_BLD, scores, topk_expert_ids_BLK, num_local_tokens_per_expert_E)

        return forward

    _replace(moe.RoutedExperts, "forward", rolled)


def _experts_input_gradient_whole() -> None:
    """torchtitan 4054: without expert parallelism, the gradient that leaves the experts is one rank's addend, and is
    taken for the sum."""
    import torchtitan.models.common.moe_sharding as sharding

    def forgotten(own):
        def configs(**kwargs):
            routed, inner = own(**kwargs)
            routed.local_map.in_grad_placements = None
            return routed, inner

        return configs

    _replace(sharding, "_routed_experts_sharding_configs", forgotten)


# fmt: off
BUGS = [
    Bug("gradients-averaged-again", "llama3", "fsdp", "FSDP2 divides what the loss has divided already",
        r"s0/main_grad/tok_embeddings\.weight/0", _gradients_averaged, ("wrong_factor",), ("factor 0.5",)),
    Bug("gradients-reduced-in-bf16", "llama3", "fsdp", "FSDP2 adds F32 gradients up in BF16",
        r"s0/main_grad/tok_embeddings\.weight/0", _reduced_in_bf16, ("extra_rounding", "localised")),
    Bug("tokens-of-this-rank", "llama3", "fsdp", "losses are divided by the tokens of one rank",
        r"s0/m0/loss/loss/0", _tokens_of_rank, ("wrong_factor", "repeated_reduction"), ("factor 2",)),
    Bug("norm-gradient-of-one-shard", "llama3", "tp", "the gradient of a norm's weight is not summed over the sequence",
        r"s0/main_grad/layers\.0\.ffn_norm\.weight/0", _norm_gradient_of_one_shard, ("missing_reduction",),
        ("axis tp",), quick=True),
    Bug("only-the-last-microbatch", "llama3", "fsdp, 4 micro-batches", "gradients are zeroed between micro-batches",
        r"s0/main_grad/tok_embeddings\.weight/0", _last_microbatch_alone, ("missing_microbatch", "wrong_addends"),
        ("microbatch 0", "microbatch 1", "microbatch 2")),
    Bug("label-one-column-off", "llama3", "tp", "loss parallelism with the wrong offset of the second shard",
        r"s0/m0/loss/loss/0", _vocabulary_offset, ("", "localised")),
    Bug("exponentials-of-one-shard", "llama3", "tp", "the softmax's sum covers one shard of the vocabulary",
        r"s0/m0/loss/loss/0", _max_of_shard, ("missing_reduction", "replicas_diverge", "")),
    Bug("chunked-gradient-labelled-whole", "llama3", "tp chunked loss", "an addend of the head's gradient goes on as the sum",
        r"s0/m0/grad_output/norm/0", _chunked_gradient_labelled_whole, ("missing_reduction",), ("axis tp",)),
    Bug("rotated-one-further", "llama3", "tp", "the second rank's positions begin at one",
        r"s0/m0/output/layers\.0\.attention\.rope/0", _rotated_one_further, ("positions", "localised"), ("rank 1",)),
    Bug("embedding-mask-too-wide", "llama3", "tp", "two shards of the embedding answer for one token",
        r"s0/m0/output/tok_embeddings/0", _embedding_mask_too_wide, ("localised", "wrong_addends"),
        redeclared="as first written it concerned one token, which the data does not hold"),
    Bug("down-projection-not-summed", "llama3", "tp without sp", "a row-wise product is taken for whole",
        r"s0/m0/output/layers\.1\.feed_forward\.w2/0", _rowwise_not_summed, ("missing_reduction",), ("axis tp",)),
    Bug("scaled-by-the-schedule", "llama3", "pp 1F1B", "the schedule divides what the loss has divided already",
        r"s0/main_grad/tok_embeddings\.weight/0", _scaled_by_schedule, ("wrong_factor",), ("factor 0.25",)),
    Bug("weight-phase-skipped", "llama3", "pp InterleavedZeroBubble", "a zero-bubble schedule forgets one weight phase",
        r"s0/main_grad/norm\.weight/0", _weight_gradient_skipped, ("missing_microbatch",), ("microbatch 2",)),
    Bug("chunks-swapped", "llama3", "pp Interleaved1F1B", "two chunks of an interleaved schedule hold each other's layers",
        r"s0/m0/input/layers\.1(\.attention_norm)?/0|s0/m0/received/to_stage_\d/0", _chunks_swapped,
        ("wrong_layer", "")),
    Bug("clipped-by-the-norm-of-a-stage", "llama3", "pp 1F1B", "gradients are clipped by the norm of one stage",
        r"s0/scalar/grad_norm/0", _norm_of_stage, ("local_norm",), ("axis pp",)),
    Bug("activation-of-the-microbatch-before", "llama3", "pp 1F1B", "the last stage takes a stale activation",
        r"s0/m3/(received/to_stage_1|input/layers\.2(\.attention_norm)?)/0", _stale_activation, ("stale",),
        ("microbatch 2",)),
    Bug("recomputed-from-another-input", "llama3", "tp full checkpointing", "a block recomputes from a scaled input",
        r"s0/m0/(input|output)/layers\.1\.attention_norm/0~", _recomputed_from_another_input,
        ("recompute", "wrong_factor")),
    Bug("scores-of-another-token", "deepseek_v3", "tp", "experts' answers are weighted for the token before",
        r"s0/m0/output/layers\.1\.moe\.routed_experts/0", _scores_of_next_token, ("", "localised"), precision="bf16",
        redeclared="it was declared in qwen3's only layer, where it was not found; qwen3 with experts is no longer run. "
        "In deepseek_v3 the plant first stopped the run: it hid two inputs of the experts from torchtitan"),
    Bug("experts-gradient-taken-for-whole", "deepseek_v3", "tp", "one rank's addend of the experts' gradient is the sum",
        r"s0/m0/grad_output/layers\.1\.moe\.router/0", _experts_input_gradient_whole, ("missing_reduction",), ("axis tp",),
        precision="bf16", redeclared="it was declared at the norm before the experts (of qwen3), which comes after the router in backward"),
]
