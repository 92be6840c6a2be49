"""The spread form: devices forward whole source shards in slots, which XLA packs, and copy them
where routes diverge. XLA extracts tiles from the slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FORWARDING, FormFacts
from shardwright.codegen.backends.pallas_tpu.form import Delivery
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, ProgramText
from shardwright.codegen.backends.pallas_tpu.routed.kernel import ForwardingKernel
from shardwright.codegen.backends.pallas_tpu.routed.options import Option, of_shards
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.text import RoutedText, packed_text


class Spread(ForwardingKernel):
    """The spread form of an exchange. A slot contains a source shard. The kernel is that of the
    routed form."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="spread",
        rank=5,
        does="source shards go from device to device, and XLA takes tiles out of them",
        kernels=FORWARDING,
        buffers="places",
        support=("pallas_spread",),
        forwards=True,
        spreads=True,
    )
    held: ClassVar[str] = "The source shard as far as windows reach."

    @property
    def template(self) -> str:
        return "routed"

    @classmethod
    def options(cls, delivery: Delivery, window: Shape, source_reach: Shape) -> Iterator[Option]:
        for slot in Slot.every(source_reach, delivery.itemsize):
            yield from of_shards(delivery, slot)

    def context(self, request: KernelRequest, program: ProgramText) -> RoutedText:
        return packed_text(self, request, program)


FORM = Spread
