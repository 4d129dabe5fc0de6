"""Configurations for torchtitan's launcher, as a user registers them: `--module configs --config small`, or `traced`, whose trainer has
the lines for TTrace. A debug model with one layer, and tokens that the step alone decides."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass

import ttrace
from tokens import BATCH, POSITIONS, VOCABULARY, NoTokenizer, RandomTokens
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config.configs import ParallelismConfig, TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def small() -> Trainer.Config:
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:1]
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # FlexAttention has no backward on CPUs
    return Trainer.Config(
        dump_folder=tempfile.gettempdir(),
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokens.Config(),
        optimizer=dataclasses.replace(default_adamw(lr=1e-3), implementation="for-loop"),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=0),
        training=TrainingConfig(
            local_batch_size=BATCH, seq_len=POSITIONS, steps=1, disable_cuda_graphs=True, mixed_precision_param="float32"
        ),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
    )


class TracedTrainer(Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    def __init__(self, config: Trainer.Config):
        super().__init__(config)
        traced = getattr(self, "pp_schedule", self.model_parts)
        self.tracer = ttrace.attach(traced, optimizer=self.optimizers, loss="sum")
        self.loss_fn = self.tracer.watch_loss(self.loss_fn)

    def train_step(self, data_iterator) -> None:
        with self.tracer.step(self.step - 1):
            super().train_step(data_iterator)


def traced() -> Trainer.Config:
    own = small()
    own.training.dtype = {"f32": "float32", "f64": "float64"}[ttrace.precision("f32")]
    own.training.mixed_precision_param = own.training.mixed_precision_reduce = own.training.dtype
    return TracedTrainer.Config(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
