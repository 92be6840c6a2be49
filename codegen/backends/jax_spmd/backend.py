"""The backend that renders programs as plain JAX."""

from __future__ import annotations

from shardwright.codegen import registry
from shardwright.codegen.backends.base import ProgramModule
from shardwright.codegen.backends.jax_spmd.constants import STORED, stored_text
from shardwright.codegen.backends.jax_spmd.module import program_module
from shardwright.codegen.backends.jax_spmd.opaque import blobs, stored_calls
from shardwright.codegen.backends.jax_spmd.rings import ProgramRings, program_rings
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.spec.collective_ids import program_id


class SpmdBackend:
    """Renders programs as modules of plain JAX, which may include a backend's kernels."""

    def render(self, program: Partitioned) -> ProgramModule:
        return program_module(program, _rings(program))

    def stored(self, program: Partitioned) -> dict[str, str]:
        """Return the data file of a program's module, by name. It has long arrays that the function
        closes over, and calls stored as StableHLO. Return an empty dict if there are none."""
        text = stored_text(program.constants, blobs(stored_calls(program)))
        return {STORED: text} if text else {}

    def kernel_lines(self, program: Partitioned) -> tuple[str, ...]:
        """Return lines that list the matmuls with a kernel and say why the others have none."""
        return _rings(program).lines


def _rings(program: Partitioned) -> ProgramRings:
    if not program.kernels:
        return ProgramRings()
    (name,) = program.kernels
    first = program_id(program.program.name, str(program.mesh))
    return program_rings(program, registry.backend(name).ring_of, first)


BACKEND = SpmdBackend()
