"""Megatron-core 0.16.1 with explicit process groups, while parallel_state says something else.

    torchrun --nproc-per-node 4 megatron_own_groups.py [as-installed] --tp 2 [options of examples/megatron_core/train.py]

parallel_state knows data-parallel ranks alone. The model, DistributedDataParallel, the optimizer and the schedule get a
ProcessGroupCollection of tensor- and data-parallel groups. The package's cross-entropy asks parallel_state for its ranks all the
same (docs/found.md), which is repaired here unless `as-installed` comes first.
"""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "megatron_core"))

AS_INSTALLED = "as-installed" in sys.argv[1:]
if AS_INSTALLED:
    sys.argv.remove("as-installed")

import train  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.hyper_comm_grid import HyperCommGrid  # noqa: E402
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator  # noqa: E402
from megatron.core.process_groups_config import ProcessGroupCollection  # noqa: E402
from megatron.core.tensor_parallel import cross_entropy  # noqa: E402

_AXES = ("tp", "cp", "ep", "dp", "pp")
_GROUPS = {  # of a dense model, by their axes
    "tp": ["tp"], "cp": ["cp"], "ep": ["ep"], "dp": ["dp"], "pp": ["pp"], "mp": ["tp", "pp"], "dp_cp": ["cp", "dp"],
    "tp_cp": ["tp", "cp"], "tp_dp_cp": ["tp", "cp", "dp"], "tp_ep": ["tp", "ep"], "tp_ep_pp": ["tp", "ep", "pp"],
}  # fmt: skip


def collection() -> ProcessGroupCollection:
    ranks = train.torch.distributed.get_world_size()
    grid = HyperCommGrid([train.ARGS.tp, 1, 1, ranks // train.ARGS.tp, 1], list(_AXES), backend="gloo")
    groups = ProcessGroupCollection(**{name: grid.create_pg(axes) for name, axes in _GROUPS.items()})
    groups.embd = groups.pos_embd = groups.pp
    groups.expt_tp, groups.expt_dp = groups.tp, groups.dp
    groups.intra_dp_cp, groups.intra_expt_dp = groups.dp_cp, groups.dp
    groups.intra_dist_opt = groups.tp_dp_cp
    return groups


def start_ranks() -> None:
    """In place of train.py's: its functions get the groups, and it asks them for its samples."""
    tp, train.ARGS.tp = train.ARGS.tp, 1
    own_start()
    train.ARGS.tp = tp
    groups = collection()
    train.tensor_parallel.model_parallel_cuda_manual_seed(
        train.ARGS.seed, tp_rank=groups.tp.rank(), ep_rank=0, etp_rank=0, force_reset_rng=True
    )
    if not AS_INSTALLED:
        cross_entropy.get_tensor_model_parallel_group = lambda: groups.tp
        cross_entropy.get_tensor_model_parallel_rank = groups.tp.rank
        cross_entropy.get_tensor_model_parallel_world_size = groups.tp.size
    for name in ("GPTModel", "DistributedDataParallel", "get_megatron_optimizer"):
        setattr(train, name, with_groups(getattr(train, name), groups))
    schedule = train.get_forward_backward_func()
    train.get_forward_backward_func = lambda: lambda model, **options: schedule(
        model=model,
        p2p_communicator=P2PCommunicator(pp_group=groups.pp, config=train.configuration()),
        pg_collection=groups,
        **options,
    )
    train.parallel_state = types.SimpleNamespace(
        **vars(parallel_state)
        | {
            "get_data_parallel_world_size": groups.dp.size,
            "get_data_parallel_rank": groups.dp.rank,
            "get_tensor_model_parallel_rank": groups.tp.rank,
        }
    )


def with_groups(function, groups: ProcessGroupCollection):
    if isinstance(function, type):
        return type(function.__name__, (function,), {"__init__": functools.partialmethod(function.__init__, pg_collection=groups)})
    # Gloo groups for checkpoints are parallel_state's.
    return functools.partial(function, pg_collection=groups, use_gloo_process_groups=False)


own_start, train.start_ranks = train.start_ranks, start_ranks

if __name__ == "__main__":
    train.train()
