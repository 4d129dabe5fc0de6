# A Llama of transformers under a plan of tensor parallelism. Wrong: a gradient is halved.
import os
import sys

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(13)
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
m = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
if WORLD > 1:
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    for l in m.model.layers:
        columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
        plan = {name: ColwiseParallel() for name in columns}
        parallelize_module(l, mesh, {**plan, "self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()})
opt = torch.optim.AdamW(m.parameters(), 0.001)
tracer = ttrace.attach(m, optimizer=opt)
for i in range(2):
    torch.manual_seed(80 + i)
    ids = torch.randint(64, (4, 12))
    with tracer.step(i):
        out = m(input_ids=ids, labels=ids)
        opt.zero_grad()
        out.loss.backward()
        if BUG:
            m.model.layers[1].self_attn.k_proj.weight.grad.mul_(0.5)
        opt.step()
    print(i, out.loss.item())
if WORLD > 1:
    dist.destroy_process_group()
