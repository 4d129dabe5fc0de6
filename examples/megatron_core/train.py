"""Trains a small GPT with Megatron-core; the lines that TTrace needs are marked with `# ttrace`.

    ttrace check --reference "python train.py" \\
                 --candidate "torchrun --nproc-per-node 2 train.py --tp 2 --sp"

Runs on CPUs with Gloo (cpu.py patches what Megatron-core takes for granted of CUDA), and with ``--device cuda`` on
GPUs with NCCL, each rank on that of its number on its machine. Data-parallel ranks are what tp x pp leaves of all.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

import doubles
import torch
import ttrace  # ttrace


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tp", type=int, default=1, help="tensor-parallel ranks")
    add("--sp", action="store_true", help="sequence parallelism")
    add("--pp", type=int, default=1, help="pipeline stages")
    add("--vpp", type=int, default=1, help="virtual stages on a rank")
    add("--ep", type=int, default=1, help="expert-parallel ranks")
    add("--cp", type=int, default=1, help="context-parallel ranks; the attention is gathered_attention.py's")
    add("--experts", type=int, default=0, help="experts of a layer; 0: a dense model")
    add("--dispatcher", default="alltoall", choices=["alltoall", "allgather"])
    add("--aux-loss", type=float, default=0.0)
    add("--z-loss", type=float, default=0.0)
    add("--shared-expert", action="store_true")
    add("--distributed-optimizer", action="store_true")
    add("--overlap", action="store_true", help="overlap reduction and gathering with computation")
    add("--mtp", type=int, help="layers that predict further tokens")
    add("--latent", action="store_true", help="multi-head latent attention")
    add("--repaired", action="store_true", help="with --latent: all ranks' gradients of the keys' rotated part")
    add("--loss-scale", type=float, help="of FP16; dynamic if left out")
    add("--offload", action="store_true", help="what a norm and attention save for backward is offloaded")
    add("--expert-bias", action="store_true", help="routers balance by a bias")
    add("--recompute", choices=["full", "block", "selective"])
    add("--per-token-loss", action="store_true")
    add("--transposed-batch", action="store_true", help="tokens are a transposed view")
    add("--deterministic", action="store_true")
    add("--untied", action="store_true")
    add("--swiglu", action="store_true")
    add("--rms-norm", action="store_true")
    add("--qk-norm", action="store_true")
    add("--heads", type=int, default=4)
    add("--groups", type=int, help="query groups; as many as heads if left out")
    add("--fusions", action="store_true", help="small functions as torch.compile fuses them")
    add("--layers", type=int, default=4)
    add("--hidden", type=int, default=64)
    add("--sequence", type=int, default=32)
    add("--micro-batch", type=int, default=2)
    add("--global-batch", type=int, default=8)
    add("--precision", default="f32", choices=["f64", "f32", "bf16", "f16", "fp8"])
    add("--transformer-impl", default="local", choices=["local", "transformer_engine"])
    add("--fp8-parameters", action="store_true", help="weights of the linears are FP8 tensors")
    add("--fp8-history", type=int, default=8, help="length of the histories of largest magnitudes")
    add("--packed", action="store_true", help="a micro-batch is one row of two packed sequences")
    add("--dropout", type=float, default=0.0, help="probability of zeros in attention and behind every block")
    add("--steps", type=int, default=2)
    add("--seed", type=int, default=1234)
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--backend", choices=["gloo", "nccl"], help="default: gloo on CPUs, nccl on GPUs")
    args = parser.parse_args()
    if args.precision == "fp8" and args.transformer_impl == "local":
        parser.error("--precision fp8 needs --transformer-impl transformer_engine; Megatron's own layers have none")
    if args.packed and (args.transformer_impl == "local" or args.micro_batch != 1):
        parser.error("--packed needs --transformer-impl transformer_engine and --micro-batch 1")
    return args


def device_of_rank(kind: str) -> torch.device:
    """Of this type. A GPU becomes the current one: call this before anything else touches a GPU, because
    what is made on another one stays there."""
    if kind == "cpu":
        return torch.device("cpu")
    problem = ""
    if not torch.backends.cuda.is_built():
        problem = f"needs a CUDA build of torch, but this is torch {torch.__version__}; install one"
    elif not torch.cuda.is_available():
        problem = "finds no GPU; see whether nvidia-smi lists one that CUDA_VISIBLE_DEVICES does not hide"
    if problem:
        print(f"train.py: --device cuda {problem}, or use --device cpu", file=sys.stderr)
        sys.exit(2)
    number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


ARGS = arguments()
DEVICE = device_of_rank(ARGS.device)
if ARGS.device == "cpu":
    import cpu

    cpu.apply(ARGS.fusions)

from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_block import (  # noqa: E402
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)

VOCABULARY = 128
PRECISION = ttrace.precision(ARGS.precision)  # ttrace: a check in higher precision asks for its own
doubles.apply(PRECISION)
IN_FP8 = PRECISION in ("fp8", "fp8_f32")  # the latter checks operators: FP8 operands, everything else F32
TYPES = {"f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "fp8": torch.bfloat16}
TYPE = TYPES.get(PRECISION, torch.float32)
IS_HALF = TYPE in (torch.bfloat16, torch.float16)


def start_ranks() -> None:
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    alone = None if "RANK" in os.environ else torch.distributed.HashStore()  # needs no port
    backend = ARGS.backend or ("nccl" if ARGS.device == "cuda" else "gloo")
    torch.distributed.init_process_group(backend, rank=rank, world_size=world, store=alone)
    options = {"expert_model_parallel_size": ARGS.ep} if ARGS.ep > 1 else {}
    if ARGS.cp > 1:
        options["context_parallel_size"] = ARGS.cp
    parallel_state.initialize_model_parallel(ARGS.tp, ARGS.pp, ARGS.vpp if ARGS.vpp > 1 else None, **options)
    tensor_parallel.model_parallel_cuda_manual_seed(ARGS.seed)


def expert_options() -> dict[str, object]:
    options = {
        "num_moe_experts": ARGS.experts,
        "moe_router_topk": 2,
        "moe_token_dispatcher_type": ARGS.dispatcher,
        "moe_router_load_balancing_type": "aux_loss" if ARGS.aux_loss else "none",
        "moe_aux_loss_coeff": ARGS.aux_loss,
        "moe_z_loss_coeff": ARGS.z_loss or None,
        "moe_ffn_hidden_size": 2 * ARGS.hidden,
    }
    if ARGS.expert_bias:
        options.update(
            moe_router_enable_expert_bias=True,
            moe_router_score_function="sigmoid",
            moe_router_bias_update_rate=0.05,
        )
    if ARGS.shared_expert:
        options.update(moe_shared_expert_intermediate_size=2 * ARGS.hidden)
    return options


def further_options() -> dict[str, object]:
    """What only some runs have, and older versions do not know."""
    options = expert_options() if ARGS.experts else {}
    if ARGS.recompute == "selective":
        options.update(recompute_granularity="selective")
    elif ARGS.recompute:
        method = "uniform" if ARGS.recompute == "full" else "block"
        options.update(recompute_granularity="full", recompute_method=method, recompute_num_layers=1)
    if ARGS.vpp > 1:
        options.update(
            virtual_pipeline_model_parallel_size=ARGS.vpp,
            overlap_p2p_comm=True,
            batch_p2p_comm=False,
        )
    if IN_FP8:
        options.update(fp8_options())
    if ARGS.mtp:
        options.update(mtp_num_layers=ARGS.mtp)
    if ARGS.offload:
        options.update(
            fine_grained_activation_offloading=True,
            offload_modules=["attn_norm", "qkv_linear", "core_attn"],
            min_offloaded_tensor_size=1,
        )
    if ARGS.latent:
        options.update(
            q_lora_rank=ARGS.hidden // 2,
            kv_lora_rank=ARGS.hidden // 4,
            qk_head_dim=ARGS.hidden // ARGS.heads,
            qk_pos_emb_head_dim=8,
            v_head_dim=ARGS.hidden // ARGS.heads,
            rope_type="rope",
        )
    return options


def configuration() -> TransformerConfig:
    return call_with_known(
        kind_of_configuration(),
        num_layers=ARGS.layers,
        hidden_size=ARGS.hidden,
        num_attention_heads=ARGS.heads,
        num_query_groups=ARGS.groups or ARGS.heads,
        ffn_hidden_size=4 * ARGS.hidden,
        normalization="RMSNorm" if ARGS.rms_norm else "LayerNorm",
        qk_layernorm=ARGS.qk_norm,  # without it their gradients are not summed over tensor-parallel ranks
        gated_linear_unit=ARGS.swiglu,
        activation_func=torch.nn.functional.silu if ARGS.swiglu else torch.nn.functional.gelu,
        add_bias_linear=not ARGS.swiglu and not ARGS.experts,
        hidden_dropout=ARGS.dropout,
        attention_dropout=ARGS.dropout,
        tensor_model_parallel_size=ARGS.tp,
        pipeline_model_parallel_size=ARGS.pp,
        context_parallel_size=ARGS.cp,
        expert_model_parallel_size=ARGS.ep,
        sequence_parallel=ARGS.sp,
        pipeline_dtype=TYPE,
        params_dtype=TYPE,
        bf16=TYPE == torch.bfloat16,
        fp16=TYPE == torch.float16,
        attention_softmax_in_fp32=IS_HALF,
        calculate_per_token_loss=ARGS.per_token_loss,
        deterministic_mode=ARGS.deterministic,
        bias_dropout_fusion=ARGS.fusions,
        bias_activation_fusion=ARGS.fusions and (ARGS.swiglu or not ARGS.experts),
        use_cpu_initialization=True,  # the same start for all layouts; build_chunk() moves the model
        **further_options(),
    )


def kind_of_configuration() -> type:
    if not ARGS.latent:
        return TransformerConfig
    from megatron.core.transformer import MLATransformerConfig  # older versions have none

    return MLATransformerConfig


def fp8_options() -> dict[str, object]:
    """Delayed scaling: E4M3 forward, E5M2 backward."""
    return {
        "fp8": "hybrid",
        "fp8_recipe": "delayed",
        "fp8_amax_history_len": ARGS.fp8_history,
        "fp8_amax_compute_algo": "max",
        "fp8_param": ARGS.fp8_parameters,
    }


def layer_spec():
    """The layer of this run, and the norm behind the last one."""
    if ARGS.transformer_impl == "local":
        layer = layer_of_megatron()
        return layer, layer.submodules.input_layernorm
    from megatron.core.extensions.transformer_engine import TENorm
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec

    layer = get_gpt_layer_with_transformer_engine_spec(
        num_experts=ARGS.experts or None, moe_grouped_gemm=False, qk_layernorm=ARGS.qk_norm
    )
    return layer, TENorm


def layer_of_megatron():
    """Megatron's own layer, on CPUs with torch's norms, which sequence parallelism may use."""
    layer = call_with_known(
        get_gpt_layer_local_spec,
        num_experts=ARGS.experts or None,
        moe_grouped_gemm=False,
        qk_layernorm=ARGS.qk_norm,
        multi_latent_attention=ARGS.latent,
        normalization="RMSNorm" if ARGS.rms_norm else None,
    )
    if ARGS.device == "cpu":
        layer.submodules.input_layernorm = cpu.TorchNorm
        layer.submodules.pre_mlp_layernorm = cpu.TorchNorm
        attention = layer.submodules.self_attention.submodules
        if ARGS.qk_norm or ARGS.latent and cpu.norms_all_latents():
            attention.q_layernorm = cpu.TorchNorm
            setattr(attention, "kv_layernorm" if ARGS.latent else "k_layernorm", cpu.TorchNorm)
        if ARGS.cp > 1 or ARGS.latent:
            import gathered_attention

            attention.core_attention = gathered_attention.GatheredAttention
    return layer


def further_predictions(config: TransformerConfig, layer, norm, **options):
    """The layers of multi-token prediction; None where this stage has none."""
    if not ARGS.mtp:
        return None
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec

    transformer_engine = ARGS.transformer_impl != "local"
    block = call_with_known(
        get_gpt_mtp_block_spec, config, layer, use_transformer_engine=transformer_engine, **options
    )
    for entry in block.layer_specs if block else ():
        entry.submodules.enorm = entry.submodules.hnorm = entry.submodules.layer_norm = norm
    return block


def build_chunk(config: TransformerConfig, stage: int) -> torch.nn.Module:
    options = {}
    if ARGS.vpp > 1:
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=True) and stage == 0
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=True) and stage == ARGS.vpp - 1
        options["vp_stage"] = stage
        parallel_state.set_virtual_pipeline_model_parallel_rank(stage)
    else:
        first = parallel_state.is_pipeline_first_stage()
        last = parallel_state.is_pipeline_last_stage()
    layer, norm = layer_spec()
    count = call_with_known(get_num_layers_to_build, config, **options)
    model = call_with_known(
        GPTModel,
        config=config,
        transformer_layer_spec=TransformerBlockSubmodules(layer_specs=[layer] * count, layer_norm=norm),
        vocab_size=VOCABULARY,
        max_sequence_length=ARGS.sequence,
        pre_process=first,
        post_process=last,
        share_embeddings_and_output_weights=not ARGS.untied,
        position_embedding_type="rope",
        mtp_block_spec=further_predictions(config, layer, norm, **options),
        **options,
    )
    model = model.to(DEVICE)
    return Float16Module(config, model) if IS_HALF else model.to(TYPE)


def call_with_known(function, *args, **options):
    """Older versions do not have all options."""
    import inspect

    target = function.__init__ if isinstance(function, type) else function
    known = inspect.signature(target).parameters
    return function(*args, **{name: value for name, value in options.items() if name in known})


def build() -> tuple[list[torch.nn.Module], object]:
    if ARGS.repaired:
        import gathered_attention

        gathered_attention.sum_position_gradients()
    config = configuration()
    chunks = [build_chunk(config, stage) for stage in range(ARGS.vpp)]
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=TYPE != torch.float64,
        overlap_grad_reduce=ARGS.overlap,
        use_distributed_optimizer=ARGS.distributed_optimizer,
        overlap_param_gather=ARGS.overlap and ARGS.distributed_optimizer,
    )
    chunks = [
        DistributedDataParallel(config, ddp, chunk, disable_bucketing=stage > 0)
        for stage, chunk in enumerate(chunks)
    ]
    optimizer = get_megatron_optimizer(
        call_with_known(
            OptimizerConfig,
            optimizer="adam",
            lr=1e-3,
            weight_decay=0.01,
            clip_grad=1.0,
            bf16=config.bf16,
            fp16=config.fp16,
            loss_scale=ARGS.loss_scale,
            initial_loss_scale=2.0**16,
            params_dtype=TYPE,
            use_distributed_optimizer=ARGS.distributed_optimizer,
            overlap_param_gather=ARGS.overlap and ARGS.distributed_optimizer,
        ),
        chunks,
    )
    config.finalize_model_grads_func = finalize_model_grads
    if config.fp16:
        config.grad_scale_func = optimizer.scale_loss
    if ARGS.overlap:
        config.no_sync_func = [chunk.no_sync for chunk in chunks] if len(chunks) > 1 else chunks[0].no_sync
    return chunks, optimizer


def batches(step: int):
    """Micro-batches of this data-parallel rank: the i-th is number i * dp + rank of the step."""
    dp, rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    for index in range(rank, ARGS.global_batch // ARGS.micro_batch, dp):
        generator = torch.Generator().manual_seed(ARGS.seed + 1000 * step + index)
        text = torch.randint(VOCABULARY, (ARGS.micro_batch, ARGS.sequence + 1), generator=generator)
        tokens, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        mask = torch.ones(labels.shape)
        if ARGS.per_token_loss:  # a number of its own for every sample
            lengths = torch.randint(
                ARGS.sequence // 2, ARGS.sequence, (ARGS.micro_batch, 1), generator=generator
            )
            mask = (torch.arange(ARGS.sequence) < lengths).float()
        if ARGS.transposed_batch:
            tokens = tokens.t().contiguous().t()
        yield tuple(tensor.to(DEVICE) for tensor in (tokens, labels, mask))


def of_this_rank(tensor: torch.Tensor) -> torch.Tensor:
    """The positions of this context-parallel rank, of [b, s]."""
    if ARGS.cp == 1:
        return tensor
    from gathered_attention import positions

    own = positions(tensor.shape[1], parallel_state.get_context_parallel_rank(), ARGS.cp)
    return tensor[:, own].contiguous()


def over_positions(value: torch.Tensor) -> torch.Tensor:
    """The sum over context-parallel ranks, of which none knows the others' part."""
    if ARGS.cp > 1:
        torch.distributed.all_reduce(value, group=parallel_state.get_context_parallel_group())
    return value


def loss_of(mask: torch.Tensor, losses: torch.Tensor):
    total = torch.sum(losses.float() * mask)
    if ARGS.per_token_loss:
        count = mask.sum().to(torch.int)
        return total, count, {"loss": over_positions(torch.stack([total.detach(), count.float()]))}
    mean = total / over_positions(mask.sum())
    return mean, {"loss": over_positions(mean.detach().clone())}  # Megatron divides the mean in place


def packed_sequences(tokens: torch.Tensor):
    """Where two sequences of different lengths begin and end, in one row of tokens."""
    if not ARGS.packed:
        return None
    from megatron.core.packed_seq_params import PackedSeqParams

    bounds = torch.tensor([0, ARGS.sequence // 4, ARGS.sequence], dtype=torch.int32, device=tokens.device)
    longest = ARGS.sequence - ARGS.sequence // 4
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )


def forward_step(iterator, model):
    tokens, labels, mask = next(iterator)
    places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
    tokens, places, labels, mask = (of_this_rank(tensor) for tensor in (tokens, places, labels, mask))
    attention_mask = torch.tril(torch.ones(1, 1, ARGS.sequence, ARGS.sequence, device=tokens.device)) < 0.5
    options = {"loss_mask": mask} if ARGS.mtp else {}
    losses = model(
        tokens,
        places,
        attention_mask,
        labels=labels,
        packed_seq_params=packed_sequences(tokens),
        **options,
    )
    return losses, partial(loss_of, mask)


def train() -> None:
    start_ranks()
    chunks, optimizer = build()
    tracer = ttrace.attach(chunks, optimizer=optimizer)  # ttrace
    forward_backward = get_forward_backward_func()
    for step in range(ARGS.steps):
        with tracer.step(step):  # ttrace
            for chunk in chunks:
                chunk.zero_grad_buffer()
            optimizer.zero_grad()
            iterators = [batches(step) for _ in chunks]
            losses = forward_backward(
                forward_step_func=forward_step,
                data_iterator=iterators if len(chunks) > 1 else iterators[0],
                model=chunks if len(chunks) > 1 else chunks[0],
                num_microbatches=ARGS.global_batch
                // ARGS.micro_batch
                // parallel_state.get_data_parallel_world_size(),
                seq_length=ARGS.sequence,
                micro_batch_size=ARGS.micro_batch,
                forward_only=False,
            )
            _, norm, _ = optimizer.step()
        report(step, losses, norm)
    torch.distributed.destroy_process_group()


def report(step: int, losses: list, norm: float | None) -> None:
    if losses and parallel_state.get_data_parallel_rank() == 0:
        values = [entry["loss"].flatten() for entry in losses]
        value = sum(float(entry[0]) for entry in values) / len(values)
        if parallel_state.get_tensor_model_parallel_rank() == 0:
            # Where FP16 overflows, Megatron skips the step and has no norm.
            shown = "none" if norm is None else f"{float(norm):.9g}"
            print(f"step {step} loss {value:.9g} grad_norm {shown}", flush=True)


if __name__ == "__main__":
    train()
