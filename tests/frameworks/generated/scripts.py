"""The training scripts that get random options. Another one needs an entry here and nothing else."""

from __future__ import annotations

from options import ROOT, Case, Program, flags

FRAMEWORKS = ROOT / "tests" / "frameworks"

# --- examples/dtensor --------------------------------------------------------------------------------


def _dtensor_ranks(case: Case) -> int:
    return int(case["data"]) * int(case["tp"]) * int(case["pp"])


def _dtensor_problem(case: Case) -> str:
    if case["pp"] > 1 and (case["data"] > 1 or case["tp"] > 1):
        return "stages go alone"
    if case["pp"] > 1 and case["autocast"]:
        return "stages are not under autocast"
    if (case["data"] > 1) != (case["kind"] is not None):
        return "several data-parallel ranks have a kind, and one has none"
    if case["kind"] == "hsdp" and case["data"] != 4:
        return "HSDP needs two groups of two"
    if case["sp"] and case["tp"] == 1:
        return "sequence parallelism is over tensor-parallel ranks"
    if case["kind"] == "ddp" and case["tp"] > 1:
        return "DistributedDataParallel is not put over DTensors"
    if case["microbatches"] > 1 and case["data"] > 1:
        return "ranks would cut other samples into micro-batches than the reference"
    if case["autocast"] and (case["precision"] != "f32" or case["tp"] > 1):
        return "autocast is for F32 parameters; under it styles mix types"
    return ""


def _dtensor_candidate(case: Case) -> str:
    kind = f"--{case['kind']} " if case["kind"] else ""
    stages = "--pp " if case["pp"] > 1 else ""
    return kind + stages + flags({**case, "tp": case["tp"] if case["tp"] > 1 else None}, "tp", "sp")


DTENSOR = Program(
    ROOT / "examples" / "dtensor" / "train.py",
    {
        "precision": ("f32", "bf16"),
        "autocast": (False, True),
        "sp": (False, True),
        "kind": (None, "ddp", "fsdp", "hsdp"),
        "data": (1, 2, 4),
        "tp": (1, 2, 4),
        "pp": (1, 2, 4),
        "microbatches": (1, 2),
        "steps": (1, 2),
    },
    ("autocast", "pp", "microbatches"),
    _dtensor_ranks,
    _dtensor_problem,
    lambda case: flags(case, "precision", "seed", "autocast", "steps"),
    lambda case: _dtensor_candidate(case) + (f" --microbatches {case['microbatches']}" if case["pp"] == 1 else ""),
    lambda case: f"--microbatches {4 if case['pp'] > 1 else case['microbatches']}",
)


# --- examples/megatron_core --------------------------------------------------------------------------


def _megatron_ranks(case: Case) -> int:
    return int(case["tp"]) * int(case["pp"]) * int(case["cp"]) * int(case["data"])


def _megatron_problem(case: Case) -> str:
    return _megatron_layout_problem(case) or _megatron_model_problem(case) or _megatron_expert_problem(case)


def _megatron_layout_problem(case: Case) -> str:
    microbatches = case["global-batch"] // (case["micro-batch"] * case["data"])
    if case["global-batch"] % (case["micro-batch"] * case["data"]) or microbatches < 1:
        return "micro-batches of data-parallel ranks are equally many"
    if case["sp"] and case["tp"] == 1:
        return "sequence parallelism is over tensor-parallel ranks"
    if case["vpp"] > 1 and (case["pp"] == 1 or microbatches % case["pp"]):
        return "virtual stages need stages, and as many micro-batches as these or a multiple"
    if case["layers"] % (case["pp"] * case["vpp"]):
        return "stages have equally many layers"
    if case["overlap"] and not case["distributed-optimizer"]:
        return "what overlaps is the distributed optimizer's"
    return ""


def _megatron_model_problem(case: Case) -> str:
    groups = case["groups"] or case["heads"]
    if case["heads"] % groups or groups % case["tp"]:
        return "heads are divided by groups, and these by ranks"
    if case["recompute"] == "selective" and case["qk-norm"]:
        return "not tried"
    if case["latent"] and (case["groups"] or case["qk-norm"]):
        return "latent attention has one group and norms of its own"
    if case["latent"] and case["tp"] > 1 or case["mtp"] and case["cp"] > 1 and not case["per-token-loss"]:
        return "Megatron-core computes wrong gradients there: docs/found.md"
    if case["offload"] and case["recompute"]:
        return "what is offloaded is not computed again"
    if case["loss-scale"] and case["precision"] != "f16":
        return "only FP16 scales the loss"
    return ""


def _megatron_expert_problem(case: Case) -> str:
    if not case["experts"]:
        features = ("aux-loss", "z-loss", "shared-expert", "expert-bias")
        return "experts' options need experts" if case["ep"] > 1 or any(case[name] for name in features) else ""
    if case["ep"] > case["data"] * case["cp"]:
        return "experts are divided among data-parallel ranks"
    if case["expert-bias"] and (case["aux-loss"] or case["z-loss"]):
        return "not tried"
    shares_sequence = case["sp"] or case["cp"] > 1
    if case["per-token-loss"] and shares_sequence and (case["aux-loss"] or case["z-loss"]):
        return "Megatron-core computes wrong gradients there: docs/found.md"
    if case["tp"] > 1 and not case["sp"]:
        return "experts under tensor parallelism need sequence parallelism"
    if case["dispatcher"] == "allgather" and case["shared-expert"]:
        return "not tried"
    return ""


MEGATRON = Program(
    ROOT / "examples" / "megatron_core" / "train.py",
    {
        "precision": ("f32", "bf16", "f16"),
        "loss-scale": (None, 1024),
        "offload": (False, True),
        "mtp": (None, 1),
        "latent": (False, True),
        "expert-bias": (False, True),
        "cp": (1, 2),
        "overlap": (False, True),
        "distributed-optimizer": (False, True),
        "recompute": (None, "full", "block", "selective"),
        "per-token-loss": (False, True),
        "untied": (False, True),
        "swiglu": (False, True),
        "rms-norm": (False, True),
        "qk-norm": (False, True),
        "dispatcher": ("alltoall", "allgather"),
        "aux-loss": (0, 0.01),
        "z-loss": (0, 0.001),
        "shared-expert": (False, True),
        "ep": (1, 2),
        "experts": (0, 4),
        "sp": (False, True),
        "vpp": (1, 2),
        "pp": (1, 2),
        "data": (1, 2, 4),
        "tp": (1, 2, 4),
        "layers": (2, 4),
        "hidden": (64, 32),
        "heads": (4, 8),
        "groups": (None, 2, 4),
        "sequence": (16, 32),
        "micro-batch": (1, 2),
        "global-batch": (4, 8),
        "steps": (1, 2),
    },
    ("loss-scale", "offload", "mtp", "latent", "expert-bias", "cp", "overlap", "recompute", "per-token-loss", "qk-norm", "dispatcher", "aux-loss", "z-loss", "shared-expert",
     "ep", "experts", "vpp", "groups", "steps"),
    _megatron_ranks,
    _megatron_problem,
    lambda case: flags(
        {**case, "experts": case["experts"] or None, "aux-loss": case["aux-loss"] or None, "z-loss": case["z-loss"] or None},
        "precision", "seed", "per-token-loss", "untied", "swiglu", "rms-norm", "qk-norm", "experts", "aux-loss", "z-loss",
        "shared-expert", "expert-bias", "mtp", "latent", "loss-scale", "layers", "hidden", "heads", "groups", "sequence", "micro-batch", "global-batch", "steps",
    ),
    lambda case: flags(
        {**case, **{name: case[name] if case[name] > 1 else None for name in ("tp", "pp", "vpp", "ep", "cp")},
         "dispatcher": case["dispatcher"] if case["experts"] else None},
        "tp", "sp", "pp", "vpp", "ep", "cp", "dispatcher", "distributed-optimizer", "overlap", "recompute", "offload",
    ),
    needs=("megatron.core",),
)  # fmt: skip


# --- tests/frameworks/layers -------------------------------------------------------------------------

LAYERS = Program(
    FRAMEWORKS / "layers" / "train.py",
    {
        "precision": ("f32", "bf16"),
        **{f"layer{number}": ("wide", "narrow") for number in range(4)},
        "count": (2, 1, 3, 4),
        "steps": (1, 2),
    },
    ("steps",),
    lambda case: 4,
    lambda case: "",
    lambda case: f"--strategies {','.join(case[f'layer{n}'] for n in range(case['count']))} "
    + flags(case, "precision", "seed", "steps"),
    lambda case: "",
)

# --- tests/frameworks/titan: torchtitan, and schedules of torch's pipelining -------------------------

ONE_STAGE, TWO_STAGES = ("1F1B", "GPipe"), ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble")
SPLIT_BACKWARD = ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
TITAN_BATCH = 8


def _titan_ranks(case: Case) -> int:
    return int(case["dp"]) * int(case["replicate"]) * int(case["tp"]) * int(case["pp"])


def _titan_problem(case: Case) -> str:
    shards = case["dp"] * case["replicate"]
    if TITAN_BATCH % (shards * case["microbatches"]):
        return "every micro-batch has a sample for every rank"
    if case["no-sp"] and case["tp"] == 1:
        return "sequence parallelism is over tensor-parallel ranks"
    if case["replicate"] > 1 and case["dp"] == 1:
        return "HSDP shards within its groups"
    if case["ep"] > 1 and (case["model"] in ("llama3", "qwen3") or case["ep"] > case["dp"] * case["tp"]):
        return "experts are divided among ranks, and dense models have none"
    if case["mixed"] and case["precision"] != "f32":
        return "mixed precision keeps parameters in F32"
    return _titan_experts_problem(case) or _titan_stages_problem(case)


def _titan_experts_problem(case: Case) -> str:
    if case["model"] not in ("qwen3_moe", "deepseek_v3"):
        return ""
    if case["precision"] == "f32":
        return "experts multiply in BF16, and nothing in a trace says so: docs/frameworks.md"
    if case["pp"] > 1 and case["steps"] > 1:
        return "torch's stages count rows that are none, and the second step has other choices: docs/found.md"
    return ""


def _titan_stages_problem(case: Case) -> str:
    if case["pp"] == 1:
        return "a schedule is one of stages" if case["schedule"] != "1F1B" else ""
    if case["chunked-loss"]:
        return "the head is a stage's"
    if case["model"] == "qwen3":
        return "its output layer is the embedding, which lies on another stage"
    if case["backend"] == "full_dtensor" and case["dp"] * case["replicate"] > 1:
        return "samples reach stages as tensors that are no DTensors"
    if case["compile"] and case["schedule"] in SPLIT_BACKWARD:
        return "a compiled backward runs as a whole"
    if case["schedule"] in TWO_STAGES and case["layers"] < 3:
        return "there are fewer layers than stages"
    if case["microbatches"] < case["pp"] * (2 if case["schedule"] in TWO_STAGES else 1):
        return "there are fewer micro-batches than stages"
    return ""


TITAN = Program(
    FRAMEWORKS / "titan" / "train.py",
    {
        "precision": ("f32", "bf16"),
        "mixed": (False, True),
        "compile": (None, "aot_eager"),
        "checkpoint": ("none", "selective", "full"),
        "chunked-loss": (0, 4),
        "no-sp": (False, True),
        "schedule": (*ONE_STAGE, *TWO_STAGES),
        "backend": ("partial_dtensor", "full_dtensor"),
        "ep": (1, 2),
        "replicate": (1, 2),
        "pp": (1, 2),
        "dp": (1, 2, 4),
        "tp": (1, 2, 4),
        "microbatches": (1, 2, 4),
        "model": ("llama3", "qwen3", "qwen3_moe", "deepseek_v3"),
        "layers": (2, 3, 4),
        "steps": (1, 2),
    },
    ("mixed", "compile", "checkpoint", "chunked-loss", "no-sp", "ep", "replicate", "steps"),
    _titan_ranks,
    _titan_problem,
    lambda case: flags(
        {**case, "chunked-loss": case["chunked-loss"] or None},
        "model", "layers", "backend", "precision", "mixed", "checkpoint", "chunked-loss", "compile", "microbatches", "steps",
    ),
    lambda case: flags(
        {**case, **{name: case[name] if case[name] > 1 else None for name in ("dp", "replicate", "tp", "pp", "ep")},
         "schedule": case["schedule"] if case["pp"] > 1 else None},
        "dp", "replicate", "tp", "no-sp", "pp", "schedule", "ep",
    ),
    needs=("torchtitan", "spmd_types", "torchdata", "tokenizers"),
)  # fmt: skip

def _pipelining_problem(case: Case) -> str:
    if case["keep-gathered"] and case["within"] != "fsdp":
        return "only FSDP gathers"
    if case["within"] == "fsdp" and not case["keep-gathered"] and case["schedule"] in SPLIT_BACKWARD:
        return "FSDP2 frees gradients that do not exist yet: docs/found.md"
    return ""


PIPELINING = Program(
    FRAMEWORKS / "titan" / "stages.py",
    {
        "precision": ("f32", "bf16"),
        "within": (None, "tp", "fsdp"),
        "keep-gathered": (False, True),
        "schedule": (*ONE_STAGE, *TWO_STAGES, "DualPipeV"),
        "steps": (1, 2),
    },
    ("steps",),
    lambda case: 4 if case["within"] else 2,
    _pipelining_problem,
    lambda case: flags(case, "precision", "steps"),
    lambda case: flags(case, "schedule", "keep-gathered") + (f" --{case['within']}" if case["within"] else ""),
)

# --- tests/frameworks/hf: transformers ---------------------------------------------------------------


def _transformers_problem(case: Case) -> str:
    if (case["data"] > 1) != (case["kind"] is not None):
        return "several data-parallel ranks have a kind, and one has none"
    if case["tp"] > 1 and (case["kind"] == "ddp" or case["model"] in ("t5", "vit")):
        return "no plan for tensor parallelism, or none under DDP"
    if case["kv-heads"] % case["tp"]:
        return "heads are divided by ranks"
    if case["model"] == "vit" and case["pad"] or case["model"] == "t5" and case["attention"] != "eager":
        return "there is no such thing"
    if case["frozen"] and case["model"] in ("t5", "vit"):
        return "not tried"
    if case["scaler"] and (case["precision"] != "f32" or case["tp"] > 1):
        return "autocast is for F32 parameters"
    if case["clip"] and case["tp"] > 1 and not case["kind"]:
        return "torch takes the norm of tensors or of DTensors, not of both"
    return ""


TRANSFORMERS = Program(
    FRAMEWORKS / "hf" / "train.py",
    {
        "precision": ("f32", "bf16"),
        "scaler": (0, 4096),
        "clip": (0, 0.5),
        "checkpointing": (False, True),
        "frozen": (False, True),
        "pad": (False, True),
        "attention": ("eager", "sdpa"),
        "kind": (None, "ddp", "fsdp"),
        "data": (1, 2, 4),
        "tp": (1, 2, 4),
        "kv-heads": (2, 4),
        "model": ("llama", "qwen3", "mixtral", "t5", "vit"),
        "steps": (1, 2),
    },
    ("scaler", "clip", "checkpointing", "frozen", "pad", "steps"),
    lambda case: int(case["data"]) * int(case["tp"]),
    _transformers_problem,
    lambda case: flags(
        {**case, "scaler": case["scaler"] or None, "clip": case["clip"] or None},
        "model", "precision", "scaler", "clip", "checkpointing", "frozen", "pad", "attention", "kv-heads", "steps",
    ),
    lambda case: flags({**case, "tp": case["tp"] if case["tp"] > 1 else None}, "tp")
    + (f" --{case['kind']}" if case["kind"] else ""),
    needs=("transformers", "accelerate", "peft"),
)  # fmt: skip

PROGRAMS = {
    "dtensor": DTENSOR,
    "megatron-core": MEGATRON,
    "layers": LAYERS,
    "pipelining": PIPELINING,
    "torchtitan": TITAN,
    "transformers": TRANSFORMERS,
}
