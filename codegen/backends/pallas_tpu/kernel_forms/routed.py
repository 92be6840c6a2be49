"""The routed form: devices forward tiles, in slots that XLA packs and unpacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FORWARDING, FormFacts
from shardwright.codegen.backends.pallas_tpu.form import Delivery
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, ProgramText
from shardwright.codegen.backends.pallas_tpu.routed.kernel import ForwardingKernel
from shardwright.codegen.backends.pallas_tpu.routed.options import Option, of_tiles
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.text import RoutedText, packed_text


class Routed(ForwardingKernel):
    """The routed form of an exchange. A slot contains a tile."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="routed",
        rank=4,
        does="tiles go from device to device, in slots that XLA packs and unpacks",
        kernels=FORWARDING,
        buffers="places",
        support=("pallas_routed",),
        forwards=True,
    )
    held: ClassVar[str] = "The largest tile."

    @classmethod
    def options(cls, delivery: Delivery, window: Shape, source_reach: Shape) -> Iterator[Option]:
        for slot in Slot.every(window, delivery.itemsize):
            yield of_tiles(delivery, slot)

    def context(self, request: KernelRequest, program: ProgramText) -> RoutedText:
        return packed_text(self, request, program)


FORM = Routed
