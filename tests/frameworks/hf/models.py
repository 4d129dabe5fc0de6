"""Tiny models of Hugging Face and their batches. They are made from configurations with fixed seeds, so that
nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)
from transformers.distributed import DistributedConfig

VOCABULARY, POSITIONS, BATCH, CLASSES = 64, 16, 8, 10
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
MODELS = ("llama", "qwen3", "mixtral", "bloom", "t5", "vit")
_KINDS = {"t5": AutoModelForSeq2SeqLM, "vit": AutoModelForImageClassification}


def _sizes(name: str, kv_heads: int) -> dict:
    if name == "t5":
        return {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY,
                "dropout_rate": 0.0, "decoder_start_token_id": 0, "relative_attention_num_buckets": 8,
                "relative_attention_max_distance": 16}  # fmt: skip
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "initializer_range": 0.2}  # fmt: skip
    if name == "vit":
        return {**sizes, "image_size": 16, "patch_size": 4, "num_labels": CLASSES}
    if name == "bloom":
        return {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "initializer_range": 0.2,
                "hidden_dropout": 0.0, "attention_dropout": 0.0, "use_cache": False}  # fmt: skip
    sizes |= {"num_key_value_heads": kv_heads, "vocab_size": VOCABULARY, "max_position_embeddings": 32,
              "head_dim": 8, "use_cache": False}  # fmt: skip
    return sizes | ({"num_local_experts": 4, "num_experts_per_tok": 2} if name == "mixtral" else {})


def is_distributed() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ


def start_processes() -> None:
    if is_distributed() and not dist.is_initialized():
        dist.init_process_group("gloo")


@contextlib.contextmanager
def _common_folder() -> Iterator[str]:
    """One folder for all ranks."""
    name = [tempfile.mkdtemp(prefix="ttrace-hf-")] if dist.get_rank() == 0 else [""]
    dist.broadcast_object_list(name)
    try:
        yield name[0]
    finally:
        dist.barrier()
        shutil.rmtree(name[0], ignore_errors=True)


def build(
    name: str,
    kind: torch.dtype,
    kv_heads: int = 2,
    attention: str = "eager",
    distributed: DistributedConfig | None = None,
) -> PreTrainedModel:
    """`distributed` cuts the model as transformers does when it loads one."""
    torch.manual_seed(1)
    loader = _KINDS.get(name, AutoModelForCausalLM)
    config = AutoConfig.for_model(name, **_sizes(name, kv_heads))
    # The grouped product of torch takes no F64, in which a check of F32 operators computes.
    options = {"attn_implementation": attention, "experts_implementation": "eager"}
    model = loader.from_config(config, **options)
    if distributed is None:
        return model.to(kind)
    with _common_folder() as folder:
        if dist.get_rank() == 0:
            model.save_pretrained(folder)
        dist.barrier()
        return loader.from_pretrained(folder, dtype=kind, distributed_config=distributed, **options)


def batch_of(name: str, number: int, kind: torch.dtype, is_padded: bool = False) -> dict[str, torch.Tensor]:
    """All samples of an iteration. Labels of -100 do not count; padding is on the left."""
    generator = torch.Generator().manual_seed(100 + number)
    if name == "vit":
        return {"pixel_values": torch.randn(BATCH, 3, 16, 16, generator=generator).to(kind),
                "labels": torch.randint(CLASSES, (BATCH,), generator=generator)}  # fmt: skip
    tokens = torch.randint(1, VOCABULARY, (BATCH, POSITIONS), generator=generator)
    mask = torch.ones_like(tokens)
    if is_padded:
        padding = (torch.arange(BATCH) * 3) % 11  # unequal halves of the batch
        mask = (torch.arange(POSITIONS) >= padding[:, None]).long()
        tokens = tokens * mask
    labels = tokens if name == "t5" else tokens.roll(-1, 1)
    labels = labels.masked_fill(mask == 0, -100)
    if name != "t5":
        labels[:, -1] = -100
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def part_of(batch: dict[str, torch.Tensor], shard: int, shards: int) -> dict[str, torch.Tensor]:
    return {key: tensor.chunk(shards)[shard] for key, tensor in batch.items()}


def losses_of(name: str, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Per sample and token; 0 where a label does not count."""
    given = {key: tensor for key, tensor in batch.items() if key != "labels" or name == "t5"}
    logits = model(**given).logits
    rows = logits.transpose(1, 2) if logits.dim() == 3 else logits
    return F.cross_entropy(rows, batch["labels"], reduction="none", ignore_index=-100)
