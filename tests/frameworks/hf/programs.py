"""Programs of Hugging Face: transformers, its Trainer, accelerate and peft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalogue import Layout, Program

HERE = Path(__file__).parent
TRAIN, TRAINER, ACCELERATED = HERE / "train.py", HERE / "trainer.py", HERE / "accelerated.py"
LORA, FORWARD = HERE / "lora.py", HERE / "forward.py"
NEEDS = ("transformers", "accelerate", "peft")
IMPORTS = (
    "transformers.trainer", "transformers.distributed", "accelerate", "peft",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("llama", "qwen3", "mixtral", "bloom", "t5", "vit")),
)  # fmt: skip

DDP = Layout("ddp", 2, "--ddp")
FSDP = Layout("fsdp", 2, "--fsdp")
TP = Layout("tp 2", 2, "--tp 2")
TP4 = Layout("tp 4", 4, "--tp 4 --kv-heads 4", reference="--kv-heads 4")
FSDP_TP = Layout("fsdp tp", 4, "--fsdp --tp 2")


def _program(name: str, script: Path, layouts: tuple[Layout, ...], options: str = "") -> Program:
    return Program(name, script, layouts, options, NEEDS, IMPORTS, trains=script != FORWARD)


PROGRAMS = (
    _program("llama", TRAIN, (DDP, FSDP, replace(TP, quick=True), TP4, FSDP_TP), "--model llama"),
    _program("qwen3", TRAIN, (DDP, FSDP, TP, TP4, FSDP_TP), "--model qwen3 --attention sdpa"),
    _program("mixtral", TRAIN, (DDP, FSDP, TP, TP4, FSDP_TP), "--model mixtral"),
    # Its table of distances has samples and heads in one dimension.
    _program("bloom", TRAIN, (replace(DDP, quick=True), FSDP), "--model bloom"),
    _program("t5", TRAIN, (DDP, FSDP), "--model t5"),
    _program("vit", TRAIN, (DDP, FSDP), "--model vit"),
    _program("padded", TRAIN, (DDP, FSDP_TP), "--model llama --pad --attention sdpa"),
    _program("checkpointed", TRAIN, (FSDP, TP), "--model llama --checkpointing"),
    _program("checkpointed t5", TRAIN, (DDP, FSDP), "--model t5 --checkpointing"),
    _program("frozen", TRAIN, (DDP, FSDP, TP), "--model qwen3 --frozen"),
    _program(
        "fp16",
        TRAIN,
        (
            Layout("ddp", 2, "--ddp --scaler 65536", "--scaler 1024", ("f32",)),
            Layout("fsdp", 2, "--fsdp --scaler 65536", "--scaler 1024", ("f32",)),
        ),
        "--model llama",
    ),
    _program("trainer", TRAINER, (Layout("ddp", 2, quick=True), Layout("fsdp", 2, "--fsdp"))),
    _program(
        "fp16 clipped",
        TRAIN,
        (
            Layout("ddp", 2, "--ddp", precisions=("f32",)),
            Layout("fsdp", 2, "--fsdp --model qwen3 --kv-heads 2", "--model qwen3 --kv-heads 2", ("f32",)),
        ),
        "--scaler 65536 --clip 0.5",
    ),
    _program("trainer clipped", TRAINER, (Layout("ddp", 2), Layout("fsdp", 2, "--fsdp")), "--clip 0.5"),
    _program("accelerate", ACCELERATED, (Layout("ddp", 2),)),
    _program("lora", LORA, (replace(DDP, quick=True), FSDP)),
    _program("forward", FORWARD, (Layout("tp 2", 2, "--tp 2", precisions=("f32", "bf16", "f16")),)),
    _program(
        "second implementation",
        FORWARD,
        (
            Layout(
                "one device", 1, "--own", precisions=("f32", "bf16", "f16"),
                check=("--allow-missing", "rotary_emb|act_fn"),  # which it computes within its modules
            ),
        ),
    ),
)  # fmt: skip
