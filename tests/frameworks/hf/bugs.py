"""Silent bugs in programs of Hugging Face. Many are from the histories of transformers, accelerate, peft and
programs that use them; `what` names the issue."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from catalogue import Bug


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _script() -> Any:
    """The module of the script that runs, whose names are those that it imported."""
    return sys.modules[Path(sys.argv[0]).stem]


def _wrap(owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
    """Puts what `make` makes of the function in its place."""
    own = getattr(owner, name)
    setattr(owner, name, functools.wraps(own)(make(own)))


def _is_of_layer(module: Any, layer: str, name: str) -> bool:
    """Whether this call is of the module of that name: `_number_modules` has numbered them."""
    return getattr(module, "planted_name", "").endswith(f"{layer}.{name}")


def _number_modules(action: Callable[[Any], None] = lambda model: None) -> None:
    """Modules know their own names once the model is built; then `action` gets the model."""

    def named(own):
        def build(*args, **kwargs):
            model = own(*args, **kwargs)
            for name, module in model.named_modules():
                module.planted_name = name
            action(model)
            return model

        return build

    _wrap(_script(), "build", named)


# --- losses and their normalisation ---------------------------------------------------------------


def _rank_divides_by_its_own_tokens() -> None:
    from transformers import TrainingArguments

    def own_tokens(own):
        def init(self, *args, **kwargs):
            own(self, *args, average_tokens_across_devices=False, **kwargs)

        return init

    _wrap(TrainingArguments, "__init__", own_tokens)


def _microbatch_divides_by_its_own_tokens() -> None:
    from transformers import Trainer

    _wrap(Trainer, "_get_num_items_in_batch", lambda own: lambda self, *args: None)


def _accumulation_not_divided() -> None:
    from accelerate import Accelerator

    def undivided(own):
        def backward(self, loss, **kwargs):
            own(self, loss * self.gradient_accumulation_steps, **kwargs)

        return backward

    _wrap(Accelerator, "backward", undivided)


# --- clipping and the loss's scale -----------------------------------------------------------------


def _clips_every_microbatch() -> None:
    from accelerate import Accelerator

    def clipping(own):
        def backward(self, loss, **kwargs):
            own(self, loss, **kwargs)
            if not self.sync_gradients:
                self.clip_grad_norm_(self._models[0].parameters(), 0.05)

        return backward

    _wrap(Accelerator, "backward", clipping)


def _clips_before_unscaling() -> None:
    import torch

    def late(own):
        def unscale(self, optimizer):
            if self.planted_calls % 2 == 1:  # the one within step()
                own(self, optimizer)
            self.planted_calls += 1

        return unscale

    torch.amp.GradScaler.planted_calls = 0
    _wrap(torch.amp.GradScaler, "unscale_", late)


def _unscales_twice() -> None:
    import torch

    def twice(own):
        def unscale(self, *args):
            own(self, *args)
            return own(self, *args)

        return unscale

    _wrap(torch.amp.GradScaler, "_unscale_grads_", twice)


def _scales_by_more_than_it_says() -> None:
    import torch

    _wrap(torch.amp.GradScaler, "scale", lambda own: lambda self, outputs: own(self, outputs * 2))


def _clips_by_the_norm_of_a_shard() -> None:
    from accelerate import Accelerator
    from torch.nn.utils import get_total_norm

    def of_shard(own):
        def clip(self, parameters, max_norm, norm_type=2):
            parameters = list(parameters)
            norm = get_total_norm([p.grad.to_local() for p in parameters if p.grad is not None])
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.to_local().mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
            return norm

        return clip

    _wrap(Accelerator, "clip_grad_norm_", of_shard)


# --- reductions of gradients -----------------------------------------------------------------------


def _adapter_not_reduced() -> None:
    from torch.nn.parallel import DistributedDataParallel

    name = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.default.weight"

    def ignoring(own):
        def init(self, module, *args, **kwargs):
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [name])
            own(self, module, *args, **kwargs)

        return init

    _wrap(DistributedDataParallel, "__init__", ignoring)


def _one_layer_divides_by_four() -> None:
    def wrong(own):
        def shard(module, *args, **kwargs):
            sharded = own(module, *args, **kwargs)
            if getattr(module, "planted_name", "").endswith("layers.1"):
                module.set_gradient_divide_factor(4.0)
                module.set_force_sum_reduction_for_comms(True)
            return sharded

        return shard

    _number_modules()
    _wrap(_script(), "fully_shard", wrong)


def _norms_of_heads_not_reduced() -> None:
    from transformers.distributed import tensor_parallel

    style = tensor_parallel.ReplicatedWithGradAllReduce
    _wrap(style, "install_forward", lambda own: lambda self, module, mesh: module)


# --- tensor parallelism ----------------------------------------------------------------------------


def _row_output_not_reduced() -> None:
    from transformers.distributed.tensor_parallel import RowwiseParallel

    def partial(own):
        def transform(self, module, output, mesh):
            if _is_of_layer(module, "layers.1", "self_attn.o_proj"):
                return output.to_local()
            return own(self, module, output, mesh)

        return transform

    _number_modules()
    _wrap(RowwiseParallel, "transform_output_post_forward", partial)


def _column_input_gradient_not_reduced() -> None:
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from transformers.distributed.tensor_parallel import ColwiseParallel

    class Unreduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, mesh):
            ctx.mesh = mesh
            return DTensor.from_local(x, mesh, [Replicate()], run_check=False)

        @staticmethod
        def backward(ctx, gradient):
            assert gradient.placements == (Partial(),)
            return gradient.to_local(), None

    def local(own):
        def transform(self, module, args, kwargs, mesh):
            if _is_of_layer(module, "layers.1", "mlp.up_proj"):
                args = (Unreduced.apply(args[0], mesh), *args[1:])
            return own(self, module, args, kwargs, mesh)

        return transform

    _number_modules()
    _wrap(ColwiseParallel, "transform_inputs_pre_forward", local)


def _expert_outputs_not_reduced() -> None:
    from transformers.distributed.tensor_parallel import MoeExpertsParallel

    def partial(own):
        def transform(self, module, output, mesh):
            return output if _is_of_layer(module, "layers.1", "mlp.experts") else own(self, module, output, mesh)

        return transform

    _number_modules()
    _wrap(MoeExpertsParallel, "transform_output_post_forward", partial)


def _router_scores_gradient_not_reduced() -> None:
    from transformers.distributed.tensor_parallel import MoeExpertsParallel

    def partial(own):
        def transform(self, module, args, kwargs, mesh):
            (hidden, index, _), kwargs = own(self, module, args, kwargs, mesh)
            return (hidden, index, args[2]), kwargs

        return transform

    _wrap(MoeExpertsParallel, "transform_inputs_pre_forward", partial)


def _one_rank_normalises_no_scores() -> None:
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

    def unnormalised(own):
        def forward(self, hidden):
            logits, scores, index = own(self, hidden)
            if _rank() == 1:
                scores = logits.float().softmax(-1).gather(1, index)
            return logits, scores, index

        return forward

    _wrap(MixtralTopKRouter, "forward", unnormalised)


# --- positions and masks ---------------------------------------------------------------------------


def _one_rank_turns_by_other_positions() -> None:
    import transformers.models.qwen3.modeling_qwen3 as modeling

    def shifted(own):
        def apply(q, k, cos, sin, *args, **kwargs):
            if _rank() == 1:
                q, _ = own(q, k, cos.roll(1, 1), sin.roll(1, 1), *args, **kwargs)
                _, k = own(q, k, cos, sin, *args, **kwargs)
                return q, k
            return own(q, k, cos, sin, *args, **kwargs)

        return apply

    _wrap(modeling, "apply_rotary_pos_emb", shifted)


def _one_rank_attends_to_padding() -> None:
    import transformers.models.llama.modeling_llama as modeling

    def unpadded(own):
        def mask(**kwargs):
            return own(**{**kwargs, "attention_mask": None} if _rank() == 1 else kwargs)

        return mask

    _wrap(modeling, "create_causal_mask", unpadded)


def _one_rank_counts_buckets_in_one_direction() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    own = T5Attention._relative_position_bucket

    def bucket(relative_position, bidirectional=True, **kwargs):
        return own(relative_position, bidirectional=bidirectional and _rank() != 1, **kwargs)

    T5Attention._relative_position_bucket = staticmethod(bucket)


def _positions_of_patches_shifted() -> None:
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    def shifted(own):
        def forward(self, *args, **kwargs):
            positions = self.position_embeddings
            return own(self, *args, **kwargs) - positions + positions.roll(1, 1)

        return forward

    _wrap(ViTEmbeddings, "forward", shifted)


# --- weights ---------------------------------------------------------------------------------------


def _head_untied() -> None:
    """The head has the values of the shared weight, but its gradient goes elsewhere."""
    import torch.nn.functional as F

    def untie(model):
        head = model.lm_head
        head.forward = lambda x: F.linear(x, head.weight.detach())

    _number_modules(untie)


def _one_rank_scales_adapters_otherwise() -> None:
    def scaled(own):
        def make(model, *args, **kwargs):
            adapted = own(model, *args, **kwargs)
            for name, module in adapted.named_modules():
                if _rank() == 1 and name.endswith("layers.1.self_attn.v_proj"):
                    module.scaling["default"] = 8 / 4**0.5  # rsLoRA's
            return adapted

        return make

    _wrap(_script(), "get_peft_model", scaled)


def _adapter_not_applied() -> None:
    def disabled(own):
        def make(model, *args, **kwargs):
            adapted = own(model, *args, **kwargs)
            for name, module in adapted.named_modules():
                if name.endswith("layers.0.mlp.down_proj"):
                    module._disable_adapters = True
            return adapted

        return make

    _wrap(_script(), "get_peft_model", disabled)


# --- a second implementation -----------------------------------------------------------------------


def _pairs_of_neighbours_turned() -> None:
    import own_llama
    import torch

    def interleaved(own):
        def turned(heads):
            pairs = torch.cat([heads[..., 0::2], heads[..., 1::2]], -1)
            real, imaginary = own(pairs).chunk(2, -1)
            return torch.stack([real, imaginary], -1).flatten(-2)

        return turned

    _wrap(own_llama, "turned", interleaved)


def _keys_tiled_over_heads() -> None:
    import types

    import own_llama

    def tiled(own):
        def attention(q, k, v, **kwargs):
            count = q.shape[1] // k.shape[1]
            return own(q, k.repeat(1, count, 1, 1), v.repeat(1, count, 1, 1), **kwargs)

        return attention

    functional = types.SimpleNamespace(**vars(own_llama.F))
    own_llama.F = functional
    _wrap(functional, "scaled_dot_product_attention", tiled)


def _other_epsilon() -> None:
    import own_llama

    own_llama.EPSILON = 1e-5


_FIRST = r"s0/main_grad/model\.embed_tokens\.weight/0"  # of all gradients, where all are wrong
_LORA = r"base_model\.model\.model\.layers"

# fmt: off
BUGS = [
    # Losses.
    Bug("tokens-of-one-rank", "trainer", "ddp",
        "each rank divides by its own number of tokens (transformers #34242)",
        r"s0/m0/grad_output/lm_head/0", _rank_divides_by_its_own_tokens, ("wrong_factor",)),
    Bug("tokens-of-one-microbatch", "trainer", "ddp",
        "each micro-batch is a mean over its own tokens (transformers #34191)",
        r"s0/m0/grad_output/lm_head/0", _microbatch_divides_by_its_own_tokens, ("wrong_factor",)),
    Bug("accumulation-not-divided", "accelerate", "ddp",
        "the loss is not divided by the number of accumulated micro-batches",
        r"s0/m0/grad_output/loss/0", _accumulation_not_divided, ("wrong_factor",), ("factor 2",)),
    # Clipping and the loss's scale.
    Bug("clips-every-microbatch", "accelerate", "ddp",
        "gradients are clipped after every micro-batch that does not synchronise (accelerate #641)",
        _FIRST, _clips_every_microbatch, ("wrong_addends",)),
    Bug("clips-before-unscaling", "fp16 clipped", "ddp",
        "gradients are clipped while they still have the scale of the loss (waifu-diffusion #64)",
        _FIRST, _clips_before_unscaling, ("wrong_factor",)),
    Bug("unscales-twice", "fp16", "ddp", "gradients are divided by the scale of the loss twice",
        _FIRST, _unscales_twice, ("wrong_factor",)),
    Bug("scales-by-more-than-it-says", "fp16", "fsdp",
        "the loss is multiplied by twice the scale that the GradScaler names",
        r"s0/m0/grad_output/loss/0", _scales_by_more_than_it_says, ("wrong_factor",), ("factor 2",)),
    Bug("clips-by-the-norm-of-a-shard", "trainer clipped", "fsdp",
        "each rank clips by the norm of its own shards (pytorch #170862)",
        _FIRST, _clips_by_the_norm_of_a_shard, ("wrong_factor",)),
    # Reductions of gradients.
    Bug("adapter-not-reduced", "lora", "ddp",
        "one adapter's gradient stays each rank's own (FastVideo #1666)",
        rf"s0/main_grad/{_LORA}\.1\.self_attn\.q_proj\.lora_B\.default\.weight/0", _adapter_not_reduced,
        ("missing_reduction", "wrong_addends")),
    Bug("one-layer-divides-by-four", "vit", "fsdp", "FSDP2 divides one layer's gradients by 4 on 2 ranks",
        r"s0/main_grad/vit\.layers\.1\.attention\.q_proj\.weight/0", _one_layer_divides_by_four,
        ("wrong_factor",), ("factor 0.5",)),
    Bug("norms-of-heads-not-reduced", "qwen3", "tp 2",
        "norms of queries and keys are replicated, and nobody sums their gradients over tp",
        r"s0/main_grad/model\.layers\.0\.self_attn\.q_norm\.weight/0", _norms_of_heads_not_reduced,
        ("missing_reduction",), ("axis tp",)),
    # Tensor parallelism.
    Bug("row-output-not-reduced", "llama", "tp 2", "a row-wise linear of the plan hands on its addend",
        r"s0/m0/output/model\.layers\.1\.self_attn\.o_proj/0", _row_output_not_reduced,
        ("missing_reduction",), ("axis tp",), quick=True),
    Bug("column-input-gradient-not-reduced", "llama", "tp 2",
        "the gradient of a column-wise linear's input is not summed over tp",
        r"s0/m0/grad_output/model\.layers\.1\.post_attention_layernorm/0", _column_input_gradient_not_reduced,
        ("missing_reduction",), ("axis tp",)),
    Bug("expert-outputs-not-reduced", "mixtral", "tp 2", "experts of one layer hand on their addends",
        r"s0/m0/output/model\.layers\.1\.mlp\.experts/0", _expert_outputs_not_reduced,
        ("missing_reduction",), ("axis tp",)),
    Bug("router-scores-gradient-not-reduced", "mixtral", "tp 2",
        "the gradient of the router's scores is not summed over tp",
        r"s0/m0/grad_output/model\.layers\.1\.mlp\.gate/1", _router_scores_gradient_not_reduced,
        ("missing_reduction",), ("axis tp",)),
    Bug("one-rank-normalises-no-scores", "mixtral", "fsdp", "rank 1 does not normalise the scores of its choices",
        r"s0/m0/output/model\.layers\.0\.mlp\.gate/1", _one_rank_normalises_no_scores,
        ("wrong_factor", "localised"), ("rank 1",)),
    # Positions and masks.
    Bug("one-rank-turns-by-other-positions", "qwen3", "tp 2", "rank 1 rotates its queries by the position before",
        r"s0/m0/input/model\.layers\.0\.self_attn\.o_proj/0", _one_rank_turns_by_other_positions,
        ("positions", "localised", "")),
    Bug("one-rank-attends-to-padding", "padded", "ddp", "rank 1 ignores the mask of its padding",
        r"s0/m0/input/model\.layers\.0\.self_attn\.o_proj/0", _one_rank_attends_to_padding,
        ("localised", "attention", ""), ("rank 1",)),
    Bug("buckets-in-one-direction", "t5", "ddp", "rank 1 computes the encoder's relative positions as a decoder's",
        r"s0/m0/output/encoder\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias/0",
        _one_rank_counts_buckets_in_one_direction, ("replicas_diverge", "localised", "wrong_order")),
    Bug("positions-of-patches-shifted", "vit", "ddp", "the table of positions is shifted by one patch",
        r"s0/m0/output/vit\.embeddings/0", _positions_of_patches_shifted, ("", "constant_bias", "shifted")),
    # Weights.
    Bug("head-untied", "t5", "ddp", "the head's gradient does not reach the weight that it shares",
        r"s0/m0/param_grad/shared\.weight/0", _head_untied, ("wrong_addends",)),
    Bug("one-rank-scales-adapters-otherwise", "lora", "ddp", "rank 1 scales one adapter by rsLoRA's rule",
        rf"s0/m0/output/{_LORA}\.1\.self_attn\.v_proj/0", _one_rank_scales_adapters_otherwise,
        ("localised", "wrong_addends"), ("rank 1",)),
    Bug("adapter-not-applied", "lora", "fsdp", "one adapter is switched off",
        rf"s0/m0/output/{_LORA}\.0\.mlp\.down_proj\.lora_dropout\.default/0", _adapter_not_applied, ("",),
        redeclared="the input of the same module is recorded before its output, and is missing first"),
    # A second implementation.
    Bug("pairs-of-neighbours-turned", "second implementation", "one device",
        "neighbours are turned, where the checkpoint's halves belong together",
        r"s0/m0/input/model\.layers\.0\.self_attn\.o_proj/0", _pairs_of_neighbours_turned, ("positions",)),
    Bug("keys-tiled-over-heads", "second implementation", "one device",
        "groups of keys are tiled over the heads, where they should be repeated",
        r"s0/m0/input/model\.layers\.0\.self_attn\.o_proj/0", _keys_tiled_over_heads,
        ("localised", "attention", "")),
    Bug("other-epsilon", "second implementation", "one device", "norms have an epsilon of 1e-5 in place of 1e-6",
        r"s0/m0/output/model\.layers\.0\.input_layernorm/0", _other_epsilon, ("other_variant",)),
]
