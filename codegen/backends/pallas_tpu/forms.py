"""The list of kernel forms: the only file that names all of them."""

from __future__ import annotations

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.ring import RINGS
from shardwright.codegen.backends.pallas_tpu.routed.gathered import GATHERED
from shardwright.codegen.backends.pallas_tpu.routed.options import ROUTED, SPREAD
from shardwright.codegen.backends.pallas_tpu.routed.relayed import RELAYED
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.windows import Windows

FORMS = {
    facts.name: facts
    for facts in (
        Direct.facts,
        Windows.facts,
        Slots.facts,
        ROUTED,
        RELAYED,
        GATHERED,
        RINGS,
        SPREAD,
    )
}
"""The facts of every form, by the name that programs state."""
