"""Silent bugs around TransformerEngine's layers, put into the fake package and megatron-core one at a time.

    torchrun --nproc-per-node 2 te_bugs.py NAME [options of examples/megatron_core/train.py]

test_te.py says for each where the first divergence must be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "megatron_core"))


def _replace(owner: Any, name: str, make: Callable) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def _rank() -> int:
    from megatron.core import parallel_state

    return parallel_state.get_tensor_model_parallel_rank()


def _mark_in_second_layer(name: str) -> None:
    """Its module of this name gets an attribute `wrong`."""
    from megatron.core.transformer.transformer_layer import TransformerLayer

    def marking(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            if self.layer_number == 2:
                self.get_submodule(name).wrong = True

        return init

    _replace(TransformerLayer, "__init__", marking)


def _row_output_not_summed() -> None:
    from transformer_engine.pytorch.module import linears

    def wrong(own):
        def summed(tensor, layer):
            if getattr(layer, "wrong", False):
                return tensor.chunk(layer.tp_size)[_rank()].clone()
            return own(tensor, layer)

        return summed

    _mark_in_second_layer("self_attention.linear_proj")
    _replace(linears, "_summed", wrong)


def _norm_weights_not_marked() -> None:
    from transformer_engine.pytorch.module import linears

    def wrong(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            self.layer_norm_weight.sequence_parallel = False

        return init

    _replace(linears.LayerNormLinear, "__init__", wrong)


def _positions_gathered_in_wrong_order() -> None:
    from transformer_engine.pytorch.module import linears

    def wrong(own):
        def gathered(tensor, layer):
            result = own(tensor, layer)
            return result.roll(tensor.shape[0], 0) if getattr(layer, "wrong", False) else result

        return gathered

    _mark_in_second_layer("mlp.linear_fc1")
    _replace(linears, "_gathered", wrong)


def _queries_of_other_heads() -> None:
    from megatron.core.transformer.attention import SelfAttention

    def wrong(own):
        def get(self, *args, **kwargs):
            query, *rest = own(self, *args, **kwargs)
            if self.layer_number == 2 and _rank() == 1:
                query = query.roll(1, 2)
            return (query, *rest)

        return get

    _replace(SelfAttention, "get_query_key_value_tensors", wrong)


def _gate_and_up_swapped() -> None:
    from megatron.core.transformer.mlp import MLP

    def wrong(own):
        def forward(self, *args, **kwargs):
            if not (getattr(self, "wrong", False) and _rank() == 1):
                return own(self, *args, **kwargs)
            chunk = torch.chunk
            torch.chunk = lambda tensor, parts, dim=0: chunk(tensor, parts, dim)[::-1]
            try:
                return own(self, *args, **kwargs)
            finally:
                torch.chunk = chunk

        return forward

    _mark_in_second_layer("mlp")
    _replace(MLP, "forward", wrong)


def _amax_of_one_rank() -> None:
    from transformer_engine.pytorch.fp8 import FP8GlobalStateManager

    FP8GlobalStateManager.reduce_tensor_across_group_op_max = staticmethod(lambda tensor, group: None)


def _scale_not_updated() -> None:
    from transformer_engine.pytorch.fp8 import DelayedScalingRecipeState
    from transformer_engine.pytorch.module.base import TransformerEngineBaseModule

    def marking(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            if getattr(self, "wrong", False):
                self.fp8_meta["scaling_fwd"].wrong = True

        return init

    def wrong(own):
        def update(self, amax):
            before = self.scale[0].clone()
            own(self, amax)
            if getattr(self, "wrong", False):
                self.scale[0] = before

        return update

    _mark_in_second_layer("mlp.linear_fc1")
    _replace(TransformerEngineBaseModule, "init_fp8_metadata", marking)
    _replace(DelayedScalingRecipeState, "update", wrong)


def _weight_read_with_the_scale_before() -> None:
    from transformer_engine.pytorch.module.base import TransformerEngineBaseModule

    def wrong(own):
        def get(self, tensor, quantizer, cache_name, update_workspace):
            before = self._fp8_workspaces.get(cache_name)
            result = own(self, tensor, quantizer, cache_name, update_workspace)
            if getattr(self, "wrong", False) and before is not None:
                result._scale_inv = before._scale_inv
            return result

        return get

    _mark_in_second_layer("mlp.linear_fc2")
    _replace(TransformerEngineBaseModule, "get_weight_workspace", wrong)


BUGS: dict[str, Callable[[], None]] = {
    "row-output-not-summed": _row_output_not_summed,
    "norm-weights-not-marked": _norm_weights_not_marked,
    "positions-gathered-in-wrong-order": _positions_gathered_in_wrong_order,
    "queries-of-other-heads": _queries_of_other_heads,
    "gate-and-up-swapped": _gate_and_up_swapped,
    "amax-of-one-rank": _amax_of_one_rank,
    "scale-not-updated": _scale_not_updated,
    "weight-read-with-the-scale-before": _weight_read_with_the_scale_before,
}


def main() -> None:
    name = sys.argv.pop(1)
    import train  # its options are ours; patches Megatron-core for CPUs first

    BUGS[name]()
    train.train()


if __name__ == "__main__":
    main()
