"""Layers of 12 architectures as Hugging Face, Megatron and vLLM store them.

A recipe has the logical tensors of one layer and of the embedding, and for each store the layout of
every buffer over N devices:

- `hugging_face`: the parameters of transformers 5 under FSDP2, which cuts dimension 0 into chunks
  along the axis `fsdp`.
- `megatron`: megatron-core 0.16 with tensor parallelism along the axis `tp`, for experts too.
  Experts with biases are not cut: each device has some whole experts. The down projections of
  latent attention are on every device, as with Transformer Engine.
- `vllm`: vLLM 0.32 with tensor parallelism along the axis `tp`, without quantization. It runs
  GPT-NeoX with the code of transformers.

Buffers have the names of the parameters, without `weight`. Some buffers with interleaved heads have
one dimension more than the parameter; the bytes are the same. All experts are in one buffer, along
dimension 0. Values that loaders compute are left out, such as A of Mamba 2, `-exp(A_log)` in vLLM.

vLLM 0.32 cannot load three of the cases; the recipes assume the layouts that it would use. It
refuses T5, for which the recipe packs q, k and v as `QKVParallelLinear` does. It refuses 8 groups
of Mamba 2 on 16 devices, for which each device has the group of its heads. It divides by zero for 8
key and value heads of GPT-OSS on 16 devices, for which each head is on two devices, as in other
models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import shardwright as sw
from bench.layer_pieces import (
    Layouts,
    Piece,
    Shapes,
    Sizes,
    attention,
    delta_net,
    embedding,
    experts,
    gated,
    head_norms,
    latent_attention,
    mamba,
    norms,
    plain_mlp,
    relative_bias,
    transposed_experts,
)

STORES = ("hugging_face", "megatron", "vllm")


@dataclass(frozen=True)
class Recipe:
    """An architecture: a model, its sizes, and the functions that return the pieces of a layer."""

    name: str
    model: str
    sizes: Sizes
    pieces: tuple[Callable[[Sizes, int], Piece], ...]

    def tensors(self, sizes: Sizes | None = None) -> Shapes:
        made = (piece(sizes or self.sizes, 1) for piece in self.pieces)
        return {name: shape for piece in made for name, shape in piece.tensors.items()}

    def layouts(self, by: str, devices: int, sizes: Sizes | None = None) -> Layouts:
        """Return the layout of each buffer of the store `by` over a number of devices."""
        made = (piece(sizes or self.sizes, devices) for piece in self.pieces)
        return {name: text for piece in made for name, text in piece.stored(by).items()}

    def stored(self, by: str, devices: int, sizes: Sizes | None = None) -> sw.Stored:
        """Return the layer as a store keeps it on devices 0 to `devices` - 1, in bfloat16. `sizes`:
        by default the model's sizes."""
        axis = "fsdp" if by == "hugging_face" else "tp"
        layouts = self.layouts(by, devices, sizes)
        return sw.Stored({axis: devices}, self.tensors(sizes), layouts, "bfloat16")


TWO = norms("input_norm", "post_norm")

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            *("Llama 3", "Llama 3 8B", Sizes(4096, 32, 8, 128, 14336, 128256)),
            (embedding, attention(), gated(), TWO),
        ),
        Recipe(
            *("Qwen 3", "Qwen 3 8B", Sizes(4096, 32, 8, 128, 12288, 151936)),
            (embedding, attention(), head_norms, gated(), TWO),
        ),
        Recipe(
            *("Qwen 3 MoE", "Qwen 3 30B-A3B", Sizes(2048, 32, 4, 128, 768, 151936, 128)),
            (embedding, attention(), head_norms, experts, TWO),
        ),
        Recipe(
            *("Mixtral", "Mixtral 8x7B", Sizes(4096, 32, 8, 128, 14336, 32000, 8)),
            (embedding, attention(), experts, TWO),
        ),
        Recipe(
            *("DeepSeek V3", "DeepSeek V3 671B"),
            Sizes(7168, 128, 128, 128, 2048, 129280, 256, latent=(1536, 512)),
            (embedding, latent_attention, experts, gated(prefix="shared_"), TWO),
        ),
        Recipe(
            *("Gemma 3", "Gemma 3 12B", Sizes(3840, 16, 8, 256, 15360, 262208)),
            (embedding, attention(), head_norms, gated(), TWO, norms("pre_ff", "post_ff")),
        ),
        Recipe(
            *("Phi 3", "Phi 3 mini", Sizes(3072, 32, 32, 96, 8192, 32064)),
            (embedding, attention(hugging_face="stack"), gated(fused=True), TWO),
        ),
        Recipe(
            *("GPT-NeoX", "GPT-NeoX 20B", Sizes(6144, 64, 64, 96, 24576, 50432)),
            (
                embedding,
                attention(bias=True, hugging_face="interleaved"),
                plain_mlp,
                norms("input_norm", "input_norm.bias", "post_norm", "post_norm.bias"),
            ),
        ),
        Recipe(
            *("GPT-OSS", "GPT-OSS 20B", Sizes(2880, 64, 8, 64, 2880, 201088, 32)),
            (embedding, attention(bias=True), transposed_experts, TWO),
        ),
        Recipe(
            *("Mamba 2", "Mamba Codestral 7B", Sizes(4096, 128, 8, 64, 0, 32768, state=128)),
            (embedding, mamba, norms("input_norm")),
        ),
        Recipe(
            *("DeltaNet hybrid", "Qwen 3 Next 80B-A3B, a linear layer"),
            Sizes(2048, 16, 16, 128, 512, 151936, 512, state=128),
            (embedding, delta_net, experts, gated(prefix="shared_"), TWO),
        ),
        Recipe(
            *("T5", "T5 v1.1 XXL, an encoder layer", Sizes(4096, 64, 64, 64, 10240, 32128)),
            (embedding, attention(), relative_bias, gated(names=("wi_0", "wi_1", "wo")), TWO),
        ),
    )
}
