"""The pieces of the layers in `bench/layers.py`: logical tensors, and the layouts of their buffers
as Hugging Face, Megatron and vLLM store them.

Hugging Face's tensors are cut along `fsdp` in dimension 0; Megatron's and vLLM's along `tp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

Shapes = dict[str, tuple[int, ...]]
Layouts = dict[str, str]


@dataclass(frozen=True)
class Sizes:
    """The sizes that determine the shapes of a layer, in elements."""

    width: int  # the width of the residual stream
    heads: int
    groups: int  # the number of key and value heads
    head: int
    inner: int  # the inner width of the MLP, or of an expert
    vocabulary: int
    experts: int = 0
    state: int = 0  # states per group (Mamba 2), or the size of a key head (DeltaNet)
    latent: tuple[int, int] = (0, 0)  # MLA: the ranks of q, and of k and v

    def small(self) -> Sizes:
        """Return smaller sizes with the same numbers of heads and groups. A padded vocabulary keeps
        its number of padding rows."""
        return replace(
            self,
            width=16,
            head=8,
            inner=32,
            vocabulary=8192 + self.vocabulary % 1024,
            experts=min(self.experts, 8),
            state=min(self.state, 8),
            latent=(16, 12) if any(self.latent) else (0, 0),
        )


@dataclass(frozen=True)
class Piece:
    """Some logical tensors of a layer, and the layouts of their buffers."""

    tensors: Shapes
    hugging_face: Layouts
    megatron: Layouts
    vllm: Layouts

    def stored(self, by: str) -> Layouts:
        """Return the layouts in the store `by`: `hugging_face`, `megatron` or `vllm`."""
        found: Layouts = getattr(self, by)
        return found


def _along(heads: int, devices: int) -> str:
    """Return the axes along which heads are cut, as text. If there are more devices than heads,
    neighbouring devices share a head."""
    return '"tp"' if heads >= devices else f'"tp":(1){heads}'


def _stack(dim: int, *parts: str) -> str:
    return f"stack({dim}, {', '.join(parts)})"


def _fused(parts: Iterable[str]) -> str:
    """Return a stack that FSDP cuts as one tensor."""
    return f"cut(0, {{fsdp}}, {_stack(0, *parts)})"


def _interleaved(names: tuple[str, ...], groups: int, devices: int, *beside: int) -> str:
    """Return a stack of tensors that interleaves their rows by group, like Megatron's q, k and v.
    If there are more devices than groups, the rows of a group are cut too. `beside`: the extents of
    the other dimensions."""
    factors = f"'(g={groups} r) d -> g r d'" if beside else f"'(g={groups} r) -> g r'"
    axes = _along(groups, devices)
    stack = _stack(1, *(f"{name} {factors} [{{{axes}}}]" for name in names))
    shared = devices // groups
    return stack if shared < 2 else f'cut(1, {{"tp":({groups}){shared}}}, {stack})'


def _fsdp(names: tuple[str, ...], groups: int, *beside: int) -> str:
    """Return the stack of `_interleaved`, with its groups cut by FSDP."""
    return _interleaved(names, groups, 1, *beside).replace('"tp"', "fsdp")


def _packed(names: tuple[str, str, str], groups: int, devices: int) -> str:
    query, *rest = names
    axes = _along(groups, devices)
    return _stack(0, f"{query}[{{tp}}]", *(f"{name}[{{{axes}}}]" for name in rest))


def embedding(sizes: Sizes, devices: int) -> Piece:
    """Return the embedding. vLLM pads its rows to a multiple of 64, Megatron to a multiple of 128
    per device."""
    rows = sizes.vocabulary
    padded = -(-rows // 64) * 64 // devices
    wide = -(-rows // (128 * devices)) * 128
    return Piece(
        {"embed": (rows, sizes.width)},
        {"embed_tokens": "embed[{fsdp}]"},
        {"word_embeddings": f"embed[{{tp}} sized({wide})]"},
        {"embed_tokens": f"embed[{{tp}} sized({padded})]"},
    )


def norms(*names: str) -> Callable[[Sizes, int], Piece]:
    """Return a function that returns the piece with the norm weights of the residual stream.
    Megatron and vLLM replicate them."""

    def made(sizes: Sizes, devices: int) -> Piece:
        del devices
        whole = {name: name for name in names}
        return Piece(
            dict.fromkeys(names, (sizes.width,)),
            {name: f"{name}[{{fsdp}}]" for name in names},
            whole,
            whole,
        )

    return made


def head_norms(sizes: Sizes, devices: int) -> Piece:
    """Return the norms that are applied to each head of q and k."""
    del devices
    names = ("q_norm", "k_norm")
    whole = {name: name for name in names}
    return Piece(
        dict.fromkeys(names, (sizes.head,)),
        {name: f"{name}[{{fsdp}}]" for name in names},
        whole,
        whole,
    )


def attention(*, bias: bool = False, hugging_face: str = "apart") -> Callable[[Sizes, int], Piece]:
    """Return a function for q, k, v and o. `hugging_face`: whether Hugging Face stores q, k and v
    `apart`, in one `stack`, or `interleaved` by heads; in the last case vLLM interleaves them
    too."""

    def made(sizes: Sizes, devices: int) -> Piece:
        groups, head, width = sizes.groups, sizes.head, sizes.width
        found = Piece(
            {"o": (width, sizes.heads * head)},
            {"o_proj": "o[{fsdp}]"},
            {"linear_proj": "o[{}, {tp}]"},
            {"o_proj": "o[{}, {tp}]"},
        )
        if bias:
            found.tensors["o.bias"] = (width,)
            found.hugging_face["o_proj.bias"] = "o.bias[{fsdp}]"
            found.megatron["linear_proj.bias"] = found.vllm["o_proj.bias"] = "o.bias"
        for end, beside in (("", (width,)), *[(".bias", ())] * bias):
            names = (f"q{end}", f"k{end}", f"v{end}")
            rows = (sizes.heads * head, groups * head, groups * head)
            shapes = ((size, *beside) for size in rows)
            found.tensors.update(zip(names, shapes, strict=True))
            found.megatron[f"linear_qkv{end}"] = _interleaved(names, groups, devices, *beside)
            if hugging_face == "interleaved":
                whole, cut = found.hugging_face, found.vllm
                whole[f"query_key_value{end}"] = _fsdp(names, groups, *beside)
                cut[f"query_key_value{end}"] = _interleaved(names, groups, devices, *beside)
                continue
            found.vllm[f"qkv_proj{end}"] = _packed(names, groups, devices)
            if hugging_face == "stack":
                found.hugging_face[f"qkv_proj{end}"] = _fused(names)
            else:
                each = {f"{name[0]}_proj{end}": f"{name}[{{fsdp}}]" for name in names}
                found.hugging_face.update(each)
        return found

    return made


def latent_attention(sizes: Sizes, devices: int) -> Piece:
    """Return multi-head latent attention: down projections, which all devices have, and up
    projections, which are cut by heads."""
    del devices
    query, key = sizes.latent
    rope = sizes.head // 2
    tensors: Shapes = {
        "q_a": (query, sizes.width),
        "kv_a": (key + rope, sizes.width),
        "q_b": (sizes.heads * (sizes.head + rope), query),
        "kv_b": (sizes.heads * 2 * sizes.head, key),
        "o": (sizes.width, sizes.heads * sizes.head),
    }
    scales: Shapes = {"q_a_norm": (query,), "kv_a_norm": (key,)}
    whole = {name: name for name in scales}
    return Piece(
        tensors | scales,
        {f"{name}_proj": f"{name}[{{fsdp}}]" for name in tensors}
        | {name: f"{name}[{{fsdp}}]" for name in scales},
        {
            "linear_q_down_proj": "q_a",
            "linear_kv_down_proj": "kv_a",
            "linear_q_up_proj": "q_b[{tp}]",
            "linear_kv_up_proj": "kv_b[{tp}]",
            "linear_proj": "o[{}, {tp}]",
            **whole,
        },
        {
            "fused_qkv_a_proj": "stack(0, q_a, kv_a)",
            "q_b_proj": "q_b[{tp}]",
            "kv_b_proj": "kv_b[{tp}]",
            "o_proj": "o[{}, {tp}]",
            **whole,
        },
    )


def gated(
    *, prefix: str = "", fused: bool = False, names: tuple[str, str, str] = ("gate", "up", "down")
) -> Callable[[Sizes, int], Piece]:
    """Return a function for an MLP with a gate. `fused`: whether Hugging Face stores gate and up in
    one parameter."""

    def made(sizes: Sizes, devices: int) -> Piece:
        del devices
        gate, up, down = (f"{prefix}{name}" for name in names)
        wide, narrow = (sizes.inner, sizes.width), (sizes.width, sizes.inner)
        halves = _stack(0, f"{gate}[{{tp}}]", f"{up}[{{tp}}]")
        second = f"{down}[{{}}, {{tp}}]"
        apart = {gate: f"{gate}[{{fsdp}}]", up: f"{up}[{{fsdp}}]"}
        return Piece(
            {gate: wide, up: wide, down: narrow},
            ({f"{prefix}gate_up": _fused((gate, up))} if fused else apart)
            | {down: f"{down}[{{fsdp}}]"},
            {f"{prefix}linear_fc1": halves, f"{prefix}linear_fc2": second},
            {f"{prefix}gate_up": halves, down: second},
        )

    return made


def plain_mlp(sizes: Sizes, devices: int) -> Piece:
    """Return an MLP without a gate, with biases."""
    del devices
    cut = {
        "up": "up[{tp}]",
        "up.bias": "up.bias[{tp}]",
        "down": "down[{}, {tp}]",
        "down.bias": "down.bias",
    }
    shapes = {
        "up": (sizes.inner, sizes.width),
        "up.bias": (sizes.inner,),
        "down": (sizes.width, sizes.inner),
        "down.bias": (sizes.width,),
    }
    return Piece(shapes, {name: f"{name}[{{fsdp}}]" for name in shapes}, cut, cut)


def experts(sizes: Sizes, devices: int) -> Piece:
    """Return experts with gates, and the router, which all devices have."""
    del devices
    many, wide, inner = sizes.experts, sizes.width, sizes.inner
    halves = "stack(1, e_gate[{}, {tp}], e_up[{}, {tp}])"
    second = "e_down[{}, {}, {tp}]"
    return Piece(
        {
            "router": (many, wide),
            "e_gate": (many, inner, wide),
            "e_up": (many, inner, wide),
            "e_down": (many, wide, inner),
        },
        {
            "router": "router[{fsdp}]",
            "gate_up_proj": "stack(1, e_gate[{fsdp}], e_up[{fsdp}])",
            "down_proj": "e_down[{fsdp}]",
        },
        {"router": "router", "experts.linear_fc1": halves, "experts.linear_fc2": second},
        {"router": "router", "w13": halves, "w2": second},
    )


def transposed_experts(sizes: Sizes, devices: int) -> Piece:
    """Return GPT-OSS's experts, and its sinks, which are cut by heads. The experts are stored as
    `[in, out]`, with the columns of gate and up alternating, and have biases. In vLLM only the
    first device adds the bias of `down`; on the others it is zero. Megatron gives each device whole
    experts, because it does not cut experts with biases."""
    many, wide, inner = sizes.experts, sizes.width, sizes.inner
    turned = "'e d (f one=1) -> e f one d' [{}, {tp}]"
    beside = "'e (f one=1) -> e f one' [{}, {tp}]"
    first = ", ".join(["0", *["-"] * (devices - 1)])
    second = "down 'e f d -> e d f' [{}, {}, {tp}]"
    once = f"down.bias[{{tp}} sized({many}) into(1) table({first})]"
    shared = {"router": "router", "router.bias": "router.bias", "sinks": "sinks[{tp}]"}
    apart = "'e d f -> e f d' [{tp}]"
    return Piece(
        {
            "router": (many, wide),
            "router.bias": (many,),
            "sinks": (sizes.heads,),
            "gate": (many, wide, inner),
            "up": (many, wide, inner),
            "gate.bias": (many, inner),
            "up.bias": (many, inner),
            "down": (many, inner, wide),
            "down.bias": (many, wide),
        },
        {
            "router": "router[{fsdp}]",
            "router.bias": "router.bias[{fsdp}]",
            "sinks": "sinks[{fsdp}]",
            "gate_up_proj": _stack(
                3,
                *(f"{each} 'e d (f one=1) -> e d f one' [{{fsdp}}]" for each in ("gate", "up")),
            ),
            "gate_up_proj.bias": _stack(
                2, *(f"{each}.bias 'e (f one=1) -> e f one' [{{fsdp}}]" for each in ("gate", "up"))
            ),
            "down_proj": "down[{fsdp}]",
            "down_proj.bias": "down.bias[{fsdp}]",
        },
        {
            "experts.linear_fc1": _stack(1, f"gate {apart}", f"up {apart}"),
            "experts.linear_fc1.bias": "stack(1, gate.bias[{tp}], up.bias[{tp}])",
            "experts.linear_fc2": f"down {apart}",
            "experts.linear_fc2.bias": "down.bias[{tp}]",
            **shared,
        },
        {
            "w13": _stack(2, f"gate {turned}", f"up {turned}"),
            "w13.bias": _stack(2, f"gate.bias {beside}", f"up.bias {beside}"),
            "w2": second,
            "w2.bias": once,
            **shared,
        },
    )


def mamba(sizes: Sizes, devices: int) -> Piece:
    """Return a mixer of Mamba 2, with z, x, B, C and dt in one projection, and x, B and C in one
    convolution."""
    inner, states = sizes.heads * sizes.head, sizes.groups * sizes.state
    rows = {"z": inner, "x": inner, "B": states, "C": states, "dt": sizes.heads}
    group = _along(sizes.groups, devices)
    cuts = dict.fromkeys(rows, "tp") | {"B": group, "C": group}
    convolved = {f"conv_{name}": name for name in "xBC"}
    shared = {
        "in_proj": _stack(0, *(f"{name}[{{{cuts[name]}}}]" for name in rows)),
        "conv1d": _stack(0, *(f"{name}[{{{cuts[of]}}}]" for name, of in convolved.items())),
        "conv1d.bias": _stack(
            0, *(f"{name}.bias[{{{cuts[of]}}}]" for name, of in convolved.items())
        ),
        "dt_bias": "dt_bias[{tp}]",
        "D": "D[{tp}]",
        "norm": "norm[{tp}]",
        "out_proj": "out[{}, {tp}]",
    }
    biases = {f"{name}.bias": rows[of] for name, of in convolved.items()}
    return Piece(
        {name: (size, sizes.width) for name, size in rows.items()}
        | {name: (rows[of], 1, 4) for name, of in convolved.items()}
        | {name: (size,) for name, size in biases.items()}
        | dict.fromkeys(("dt_bias", "D"), (sizes.heads,))
        | {"norm": (inner,), "out": (sizes.width, inner)},
        {
            "in_proj": _fused(rows),
            "conv1d": _fused(convolved),
            "conv1d.bias": _fused(biases),
            **{name: f"{name}[{{fsdp}}]" for name in ("dt_bias", "D", "norm")},
            "out_proj": "out[{fsdp}]",
        },
        shared,
        shared,
    )


def delta_net(sizes: Sizes, devices: int) -> Piece:
    """Return Qwen 3 Next's gated DeltaNet: 16 groups of one key head and two value heads, which
    Hugging Face and vLLM interleave."""
    groups = sizes.groups
    keys, values = groups * sizes.state, 2 * groups * sizes.state
    rows = {"dq": keys, "dk": keys, "dv": values, "dz": values, "db": 2 * groups, "da": 2 * groups}
    wide, narrow = ("dq", "dk", "dv", "dz"), ("db", "da")
    convolved = ("conv_q", "conv_k", "conv_v")
    lengths = dict(zip(convolved, (keys, keys, values), strict=True))
    rest = {
        "conv1d": _stack(0, *(f"{name}[{{tp}}]" for name in convolved)),
        "dt_bias": "dt_bias[{tp}]",
        "d_norm": "d_norm",
        "out_proj": "d_out[{}, {tp}]",
    }
    return Piece(
        {name: (size, sizes.width) for name, size in rows.items()}
        | {name: (size, 1, 4) for name, size in lengths.items()}
        | {"dt_bias": (2 * groups,), "d_norm": (sizes.state,), "d_out": (sizes.width, values)},
        {
            "in_proj_qkvz": _fsdp(wide, groups, sizes.width),
            "in_proj_ba": _fsdp(narrow, groups, sizes.width),
            "conv1d": _fused(lengths),
            "dt_bias": "dt_bias[{fsdp}]",
            "d_norm": "d_norm[{fsdp}]",
            "out_proj": "d_out[{fsdp}]",
        },
        {"in_proj": _stack(0, *(f"{name}[{{tp}}]" for name in rows)), **rest},
        {
            "in_proj_qkvz": _interleaved(wide, groups, devices, sizes.width),
            "in_proj_ba": _interleaved(narrow, groups, devices, sizes.width),
            **rest,
        },
    )


def relative_bias(sizes: Sizes, devices: int) -> Piece:
    """Return the bias of 32 relative positions of each head, which Megatron does not cut."""
    del devices
    name = "relative_attention_bias"
    cut = {name: f"{name}[{{}}, {{tp}}]"}
    return Piece({name: (32, sizes.heads)}, {name: f"{name}[{{fsdp}}]"}, {name: name}, cut)
