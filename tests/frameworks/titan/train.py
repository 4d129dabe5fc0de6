"""Trains a debug model of torchtitan 0.3 with its own Trainer, on CPUs; the lines that TTrace needs are marked.

    ttrace check --reference "python train.py" --candidate "torchrun --nproc-per-node 4 train.py --dp 2 --tp 2"

The tokens are random and the same in every layout. --dp N shards over N ranks (FSDP2), --replicate N adds groups
that replicate each other, --tp N has sequence and loss parallelism unless --no-sp, --pp N takes --schedule, --ep N
cuts the experts of a model with experts. A run on one rank takes --microbatches for what a
pipeline does in several. --mixed keeps parameters in F32 and computes in BF16, as torchtitan does by default.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import socket
import sys
import tempfile
from pathlib import Path

import torch
import ttrace  # ttrace

sys.path.insert(0, str(Path(__file__).parent))
import cpu  # noqa: E402

cpu.apply()

from tokens import BATCH, POSITIONS, VOCABULARY, NoTokenizer, RandomTokens  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.config.configs import CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

TYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16"}
CHECKPOINTING = {"none": lambda: None, "selective": SelectiveAC.Config, "full": FullAC.Config}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="llama3", choices=["llama3", "qwen3", "qwen3_moe", "deepseek_v3"])
    add("--layers", type=int, help="keep only so many of its layers")
    add("--backend", default="spmd_types", choices=["spmd_types", "partial_dtensor", "full_dtensor"])
    for name in ("dp", "replicate", "tp", "pp", "ep"):
        add(f"--{name}", type=int, default=1)
    add("--no-sp", action="store_true", help="tensor parallelism without sequence parallelism")
    add("--schedule", default="1F1B", help="of the pipeline")
    add("--microbatches", type=int, default=1)
    add("--checkpoint", default="none", choices=sorted(CHECKPOINTING))
    add("--compile", choices=["inductor", "aot_eager"], help="compile every block")
    add("--async-tp", action="store_true")
    add("--chunked-loss", type=int, default=0, help="compute head and loss in so many chunks of positions")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--mixed", action="store_true", help="parameters in F32, products in BF16")
    add("--steps", type=int, default=2)
    return parser.parse_args()


def model_of(args: argparse.Namespace):
    package = importlib.import_module(f"torchtitan.models.{args.model.removesuffix('_moe')}")
    options = {"moe_comm_backend": "standard"} if args.model in ("qwen3_moe", "deepseek_v3") else {}
    spec = package.model_registry("debugmodel_moe" if args.model.endswith("_moe") else "debugmodel", **options)
    if args.layers:
        spec.model.layers = spec.model.layers[: args.layers]
    for layer in spec.model.layers:
        # FlexAttention, the default, has no backward on CPUs.
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return spec


def config_of(args: argparse.Namespace) -> Trainer.Config:
    kind = ttrace.precision("f32" if args.mixed else args.precision)  # ttrace: a check in higher precision asks
    computed = "bfloat16" if args.mixed and kind == "f32" else TYPES[kind]
    loss = CrossEntropyLoss.Config(global_vocab_size=VOCABULARY)
    if args.chunked_loss:
        loss = ChunkedLossWrapper.Config(loss_fn=loss, num_chunks=args.chunked_loss)
    shards = args.dp * args.replicate
    local = BATCH // shards if args.pp > 1 else BATCH // shards // args.microbatches
    return Trainer.Config(
        dump_folder=tempfile.gettempdir(),  # it makes one even if it writes nothing
        model_spec=model_of(args),
        loss=loss,
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokens.Config(microbatches=args.microbatches),
        optimizer=dataclasses.replace(default_adamw(lr=1e-3), implementation="for-loop"),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=0),
        metrics=MetricsProcessor.Config(log_freq=1, disable_color_printing=True),
        training=TrainingConfig(
            local_batch_size=local,
            global_batch_size=BATCH,
            seq_len=POSITIONS,
            steps=args.steps,
            disable_cuda_graphs=True,
            dtype=TYPES[kind],
            mixed_precision_param=computed,
            mixed_precision_reduce="float64" if kind == "f64" else "float32",
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=args.dp,
            data_parallel_replicate_degree=args.replicate,
            tensor_parallel_degree=args.tp,
            enable_sequence_parallel=not args.no_sp,
            expert_parallel_degree=args.ep,
            pipeline_parallel_degree=args.pp,
            pipeline_parallel_schedule=args.schedule,
            pipeline_parallel_microbatch_size=max(1, BATCH // shards // args.microbatches),
            spmd_backend=args.backend,
        ),
        activation_checkpoint=CHECKPOINTING[args.checkpoint](),
        compile=CompileConfig(
            enable=bool(args.compile),
            backend=args.compile or "inductor",
            components=["model"],
            enable_async_tensor_parallel=args.async_tp,
        ),
    )


class TracedTrainer(Trainer):
    """The Trainer as it is, with the lines for TTrace."""

    def __init__(self, config: Trainer.Config):
        super().__init__(config)
        traced = getattr(self, "pp_schedule", self.model_parts)  # ttrace: a schedule, or the one model
        rows = ["inner_experts/"]  # ttrace: a router has sorted them
        self.tracer = ttrace.attach(traced, optimizer=self.optimizers, loss="sum", untraced=rows)  # ttrace
        self.loss_fn = self.tracer.watch_loss(self.loss_fn)  # ttrace

    def train_step(self, data_iterator) -> None:
        with self.tracer.step(self.step - 1):  # ttrace
            super().train_step(data_iterator)


def main(trainer_class: type[Trainer] = TracedTrainer) -> None:
    args = arguments()
    with socket.socket() as listener:  # for a run without torchrun
        listener.bind(("localhost", 0))
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost"}
        alone["MASTER_PORT"] = listener.getsockname()[1]
    for name, value in alone.items():
        os.environ.setdefault(name, str(value))
    torch.manual_seed(1)
    trainer = trainer_class(config_of(args))
    trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
