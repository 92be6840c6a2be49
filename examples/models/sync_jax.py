"""RL weight sync of a whole model in JAX: from a trainer with pipeline stages to a server with
packed weights.

The trainer has two stages of four devices, with FSDP and tensor parallelism; each expert is on one
device. The server has two devices; each stores its parts of a layer's q, k and v in one buffer, and
half of the experts. A device without a part of a tensor takes no part in its move:

    python examples/models/sync_jax.py
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=10"

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw

WIDTH, EXPERTS = 32, 8
STAGES = ([0, 1, 2, 3], [4, 5, 6, 7])
SHAPES = {"q": (64, WIDTH), "k": (32, WIDTH), "v": (32, WIDTH), "o": (WIDTH, 64)}


def plan() -> sw.Sync:
    """Return the `Sync` that moves the model."""
    tensors = {f"layers.{{0,1}}.{name}": shape for name, shape in SHAPES.items()}
    tensors[f"layers.{{0,1}}.experts.{{0..{EXPERTS - 1}}}"] = (WIDTH, WIDTH)
    trainer = {}
    for layer, ids in enumerate(STAGES):
        mesh = sw.Mesh({"fsdp": 2, "tp": 2}, ids)
        trainer[f"layers.{layer}.o"] = {"layout": "_[{fsdp}, {tp}]", "mesh": mesh}
        trainer[f"layers.{layer}.{{q,k,v}}"] = {"layout": "_[{tp,fsdp}]", "mesh": mesh}
        trainer[f"layers.{layer}.experts.*"] = {
            "layout": "_",
            "mesh": sw.Mesh({"ep": 4}, ids),
            "at": {"ep": f"$1 // {EXPERTS // 4}"},
        }
    qkv = ", ".join(f"layers.*.{name}[{{tp}}]" for name in "qkv")
    server = {
        "layers.*.qkv": f"stack(0, {qkv})",
        "layers.*.o": "_[{}, {tp}]",
        "layers.*.experts.*": {"layout": "_", "at": {"tp": f"$2 // {EXPERTS // 2}"}},
    }
    model = sw.Model(tensors, "bfloat16")
    on_server = sw.Rules(sw.Mesh({"tp": 2}, [8, 9]), server)
    return sw.sync(model, sw.Rules("fsdp=2", trainer), on_server, memory_limit=16384)


def whole(name: str, shape: tuple[int, ...]) -> jax.Array:
    """Return the whole tensor `name`. Only this example needs whole tensors; the sync does not."""
    seed = np.frombuffer(name.encode(), np.uint8).sum()
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def check(served: dict[str, jax.Array]) -> None:
    """Check the values of the server's tensors, and the devices of its experts."""
    for layer in range(2):
        name = f"layers.{layer}"
        parts = [np.split(whole(f"{name}.{each}", SHAPES[each]), 2) for each in "qkv"]
        packed = np.concatenate([part[tp] for tp in range(2) for part in parts])
        np.testing.assert_array_equal(served[f"{name}.qkv"], packed)
        np.testing.assert_array_equal(served[f"{name}.o"], whole(f"{name}.o", SHAPES["o"]))
        for number in range(EXPERTS):
            expert = f"{name}.experts.{number}"
            np.testing.assert_array_equal(served[expert], whole(expert, (WIDTH, WIDTH)))
            (device,) = served[expert].devices()
            assert device.id == 8 + number // (EXPERTS // 2)


def main() -> None:
    """Move the weights, and check the server's tensors."""
    weights = plan()
    state = {
        name: jax.device_put(whole(name, struct.shape), struct.sharding)
        for name, struct in weights.source_shardings().items()
    }
    served = weights(state, digest=True)
    check(served)
    print(weights)
    print("all weights arrived")


if __name__ == "__main__":
    main()
