"""Models of transformers: the reference of four pairs."""

from __future__ import annotations

import torch
from loop import (
    CLASSES,
    POSITIONS,
    VOCABULARY,
    classes_of,
    images_of,
    next_tokens,
    options,
    tokens_of,
    train,
)
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
)

SIZES = {
    "llama": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCABULARY, "use_cache": False},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": POSITIONS,
             "use_cache": False, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
             "bos_token_id": 0, "eos_token_id": 0},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY,
           "dropout_rate": 0.0, "decoder_start_token_id": 0, "relative_attention_num_buckets": 8,
           "relative_attention_max_distance": 16, "use_cache": False, "tie_word_embeddings": True},
    "vit": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 16, "patch_size": 4, "num_labels": CLASSES, "initializer_range": 0.2},
}  # fmt: skip
KINDS = {"t5": AutoModelForSeq2SeqLM, "vit": AutoModelForImageClassification}


def main() -> None:
    args = options("model")
    config = AutoConfig.for_model(args.model, **SIZES[args.model])
    model = KINDS.get(args.model, AutoModelForCausalLM).from_config(config, attn_implementation="eager")
    model.train()

    def forward(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if args.model == "vit":
            return model(pixel_values=images_of(step)).logits, classes_of(step)
        tokens = tokens_of(step)
        if args.model == "t5":
            return model(input_ids=tokens, decoder_input_ids=tokens.flip(1)).logits, tokens
        return model(input_ids=tokens).logits, next_tokens(tokens)

    train(model, args.steps, forward)


if __name__ == "__main__":
    main()
