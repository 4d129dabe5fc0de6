# huggingface/diffusers#4046 (2023-07-11): only the layers of the low-rank adapters are collected and prepared for several processes, and
# the loop calls the model that they belong to and never the prepared collection, so that every process trains its own adapters. Right: the
# program averages their gradients after the backward. Needs peft and transformers.
import os
import sys
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertForSequenceClassification
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, PROCESSES = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Layers(nn.Module):
    """What learns, as one module."""

    def __init__(self, model):
        super().__init__()
        self.layers = nn.ParameterList(p for p in model.parameters() if p.requires_grad)


torch.manual_seed(46)
config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3)
model = BertForSequenceClassification(config)
adapters = LoraConfig(r=4, lora_alpha=16, target_modules=["query", "value"], init_lora_weights="gaussian", lora_dropout=0.0)
model = get_peft_model(model, adapters)
layers = Layers(model)
for value in layers.parameters():
    nn.init.normal_(value, std=0.1)
model.to(KIND)
if PROCESSES > 1:
    dist.init_process_group("gloo")
    layers = DistributedDataParallel(layers)
optimizer = torch.optim.AdamW(layers.parameters(), lr=5e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"dp": PROCESSES} if PROCESSES > 1 else None)
for number in range(2):
    torch.manual_seed(460 + number)
    ids, labels = torch.randint(1, 60, (8, 12)), torch.randint(3, (8,))
    lengths = torch.randint(6, 13, (8,))
    mask = (torch.arange(12) < lengths[:, None]).long()
    ids, mask, labels = (part.chunk(PROCESSES)[RANK] for part in (ids, mask, labels))
    with tracer.step(number):
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        if PROCESSES > 1 and "--bug" not in sys.argv:
            for parameter in layers.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= PROCESSES
        optimizer.step()
        optimizer.zero_grad()
    size = sum(p.detach().double().square().sum() for p in layers.parameters()).item()
    print(f"rank {RANK} step {number}: loss {loss.item():.6f} adapters {size:.8f}", flush=True)
if PROCESSES > 1:
    dist.destroy_process_group()
