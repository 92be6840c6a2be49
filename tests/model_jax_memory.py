"""Memory in flight on CPU devices while they move a toy model: TOY WIDTH LIMIT DIGEST. Prints JSON:
the most that a device holds beside buffers by the account of the call, the bytes of results on all
devices, and for each unit the bytes of that account and by the compiler's count.
"""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=6"

from typing import Any

import model_jax
from toy_models import TOYS, bits, planned

from shardwright.templates.support import jax_model, jax_units

TRAINER, SERVER = [0, 1, 2, 3], [3, 4, 5]


class Counted(jax_units.Unit):
    """A unit that knows what its programs take beside their arguments, by the compiler's count."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bytes = {"pack": 0, "exchange": 0, "unpack": 0}
        self.pack, self.exchange = self.counted("pack"), self.counted("exchange")
        self.unpacks = [(n, self.counted("unpack", program)) for n, program in self.unpacks]

    def counted(self, name: str, program: Any = None) -> Any:
        """A program, compiled when it is called first. Of those that unpack, one runs at a time."""
        made: list[Any] = []
        program = program or getattr(self, name)

        def call(*given: Any) -> Any:
            if not made:
                made.append(program.lower(*given).compile())
                said = made[0].memory_analysis()
                beside = said.output_size_in_bytes - said.alias_size_in_bytes
                beside += said.temp_size_in_bytes
                self.bytes[name] = max(self.bytes[name], beside)
            return made[0](*given)

        return call


class Watched(jax_model.Call):
    """A call that knows the most that a device held by its account."""

    most = 0

    def begin(self, items: Any, size: int) -> None:
        """Note what is in flight."""
        super().begin(items, size)
        Watched.most = max(Watched.most, *self.held.values())


def main(toy: str, width: str, limit: str, digest: str) -> None:
    """Move the toy, and say what it takes."""
    jax_model.Unit, jax_model.Call = Counted, Watched  # type: ignore[misc]
    model = TOYS[toy](TRAINER, SERVER, int(width))
    weights = jax_model.Weights(planned(model, int(limit)).data)
    made: dict[Any, Any] = {}
    unit = weights.unit
    weights.unit = lambda *key: made.setdefault(key, unit(*key))
    before, after = bits(model, 1)
    results = weights(model_jax.arrays(weights, before), digest=digest == "digest")
    model_jax.check(weights, results, after)
    stored = sum(shard.data.nbytes for x in results.values() for shard in x.addressable_shards)
    units = [
        (count * weights.needed(first, digested), sum(each.bytes.values()))
        for (first, count, _, digested), each in made.items()
    ]
    said = {"most": Watched.most, "units": units, "results": stored}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
