"""Flax models of transformers, small: the gradients of a step."""

from __future__ import annotations

from typing import Any

import jax
from program_cases import Case, library, loss_of, named, of

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
SMALL |= {"intermediate_size": 32, "max_position_embeddings": 32, "pad_token_id": 0}
QUIET = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
GPT = {"vocab_size": 32, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
GPT |= {"bos_token_id": 1, "eos_token_id": 2}
PICTURE = {"image_size": 8, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 1}
PICTURE |= {"num_attention_heads": 2, "intermediate_size": 32}

TEXTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("FlaxBertModel", "BertConfig", SMALL | QUIET),
    "roberta": ("FlaxRobertaModel", "RobertaConfig", SMALL | QUIET),
    "electra": ("FlaxElectraModel", "ElectraConfig", SMALL | QUIET | {"embedding_size": 16}),
    "albert": ("FlaxAlbertModel", "AlbertConfig", SMALL | QUIET | {"embedding_size": 16}),
    "big_bird": (
        "FlaxBigBirdModel",
        "BigBirdConfig",
        SMALL | QUIET | {"attention_type": "original_full"},
    ),
    "distilbert": (
        "FlaxDistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 32, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    ),
    "gpt2": ("FlaxGPT2LMHeadModel", "GPT2Config", GPT),
    "gptj": ("FlaxGPTJForCausalLM", "GPTJConfig", GPT | {"rotary_dim": 4}),
    "gpt_neo": (
        "FlaxGPTNeoForCausalLM",
        "GPTNeoConfig",
        SMALL
        | {"num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]}
        | {"bos_token_id": 1, "eos_token_id": 2},
    ),
    "llama": ("FlaxLlamaForCausalLM", "LlamaConfig", SMALL),
    "gemma": (
        "FlaxGemmaForCausalLM",
        "GemmaConfig",
        SMALL | {"num_key_value_heads": 1, "head_dim": 8},
    ),
    "mistral": (
        "FlaxMistralForCausalLM",
        "MistralConfig",
        SMALL | {"num_key_value_heads": 2, "sliding_window": 8},
    ),
    "opt": (
        "FlaxOPTForCausalLM",
        "OPTConfig",
        SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 16, "dropout": 0.0},
    ),
}
PICTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit": ("FlaxViTModel", "ViTConfig", PICTURE | QUIET),
    "beit": ("FlaxBeitModel", "BeitConfig", PICTURE | QUIET),
    "dinov2": ("FlaxDinov2Model", "Dinov2Config", PICTURE),
    "resnet": (
        "FlaxResNetModel",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8], "depths": [1], "layer_type": "basic"},
    ),
}


def of_model(model: str, config: str, words: dict[str, Any], x: Any, field: str) -> Case:
    """The mean square of what a model gives, and its gradients by the parameters."""
    hf = library("transformers")
    shape = {"input_shape": (8, *x.shape[1:])}
    if field == "pixel_values":
        shape = {"input_shape": (8, *(x.shape[2:]), 3)}
    made = getattr(hf, model)(getattr(hf, config)(**words), seed=0, **shape)
    params = made.params

    def apply(params: Any, x: Any) -> Any:
        batch_stats = "batch_stats" in params
        out = made(**{field: x}, params=params, **({"train": False} if batch_stats else {}))
        return out[0]

    if "batch_stats" in params:
        inner = params["params"]
        stats = params["batch_stats"]
        return Case(
            jax.value_and_grad(loss_of(lambda p, s, x: apply({"params": p, "batch_stats": s}, x))),
            (inner, stats, x),
            weights=True,
        )
    return Case(jax.value_and_grad(loss_of(apply)), (params, x), weights=True)


for each, found in TEXTS.items():
    named(f"hf_{each}", lambda f=found: of_model(*f, of(8, 12, dtype="int32"), "input_ids"))
for each, found in PICTURES.items():
    named(f"hf_{each}", lambda f=found: of_model(*f, of(8, 3, 8, 8), "pixel_values"))
