"""Overlapped loops in plain JAX: `lax.ppermute` while multiplying.

The statements follow JAX's tutorial on `shard_map` ("Matrix multiplies"), with every number as a
literal. For up to 16 devices the loop is unrolled during tracing; for more it is a `lax.fori_loop`.

`lax.ppermute` numbers devices in mesh order, in whatever order its axes are given; `lax.axis_index`
and the other collectives number them in the order of the axes. So a ring along axes in another
order has to list its devices.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.ir.matmul import Side
from shardwright.ir.matmul_plan import Loop, MatmulCandidate

UNROLLED = 16
"""The most devices in a ring whose loop is unrolled."""

Lines = list[str]


@dataclass(frozen=True)
class Ring:
    """Rings of devices, as Python expressions.

    `place`: a device's position in its ring; `axes`: the axes of a permute; `devices`: the devices
    of every ring, None if they are in mesh order; `order`: the part at each position of a ring,
    None if part i is at position i.
    """

    place: str
    axes: str
    devices: str | None = None
    order: str | None = None

    def sends(self, sign: str, count: int) -> str:
        """Return the expression for the (sender, receiver) pairs of one hop. `sign`: "+" to send to
        the next device of the ring, "-" to send to the previous one; `count`: the number of devices
        in the ring."""
        if self.devices is None:
            return f"[(i, (i {sign} 1) % {count}) for i in range({count})]"
        return f"[(r[i], r[(i {sign} 1) % {count}]) for r in rings for i in range({count})]"


def loop_lines(chosen: MatmulCandidate, loop: Loop, ring: Ring) -> Lines:
    """Return the statements of a loop that computes the result's shard `c` from the shards `a` and
    `b`."""
    text = _Scattered(chosen, loop, ring) if loop.side == "out" else _Gathered(chosen, loop, ring)
    return text.lines()


class _Rotation:
    """The text that both kinds of loops share: the ring, the offsets of parts, and products."""

    def __init__(self, chosen: MatmulCandidate, loop: Loop, ring: Ring) -> None:
        self.product, self.loop, self.ring = chosen.multiplication, loop, ring
        self.matmul = self.product.matmul
        self.size = self.product.local_extents[loop.factor] // self._parts()
        self.step = self.size // loop.directions  # the extent that travels in one direction

    def _parts(self) -> int:
        return self.loop.count

    def axis(self, side: Side) -> int | None:
        factors = self.matmul.factors(side)
        return factors.index(self.loop.factor) if self.loop.factor in factors else None

    def ring_lines(self, ways: tuple[str, ...]) -> Lines:
        """Return lines that compute this device's position in its ring and the (sender, receiver)
        pairs for each direction in `ways`."""
        signs = {"up": "+", "down": "-"}
        sends = (f"{way} = {self.ring.sends(signs[way], self.loop.count)}" for way in ways)
        rings = [] if self.ring.devices is None else [f"rings = {self.ring.devices}"]
        order = [] if self.ring.order is None else [f"order = {self.ring.order}"]
        return [*order, f"me = {self.ring.place}", *rings, *sends]

    def start(self, device: str, half: int) -> str:
        """Return the expression for the offset of a device's part or, if `half` is 1, of the second
        half of its part."""
        offset = f" + {self.step}" if half else ""
        if self.ring.order is None:
            return f"{device} % {self.loop.count} * {self.size}{offset}"
        return f"order[{device} % {self.loop.count}] * {self.size}{offset}"

    def sliced(self, name: str, start: str, axis: int) -> str:
        return f"lax.dynamic_slice_in_dim({name}, {start}, {self.step}, axis={axis})"

    def multiplied(self, a: str, b: str) -> str:
        return f"jnp.matmul({a}, {b}, preferred_element_type=jnp.{self.matmul.sum_dtype})"


class _Gathered(_Rotation):
    """A loop that gathers an operand: a device multiplies by a part while sending the part on."""

    @property
    def moving(self) -> str:
        return "a" if self.loop.side == "lhs" else "b"

    @property
    def staying(self) -> str:
        return "b" if self.loop.side == "lhs" else "a"

    def lines(self) -> Lines:
        both = self.loop.directions == 2
        ways = ("up", "down") if both else ("up",)
        lines = self.ring_lines(ways)
        names = [f"{self.moving}_{way}" for way in ways] if both else [self.moving]
        if both:
            side: Side = self.loop.side
            axis = self.axis(side)
            lines.append(f"{', '.join(names)} = jnp.split({self.moving}, 2, axis={axis})")
        lines += ["", *self._added(names), ""]
        shape = ", ".join(map(str, self.product.local_shape("out")))
        zeros = f"jnp.zeros(({shape}), jnp.{self.matmul.sum_dtype})"
        hops = [
            f"{n} = lax.ppermute({n}, {self.ring.axes}, {w})"
            for n, w in zip(names, ways, strict=True)
        ]
        return lines + self._turned(names, zeros, hops)

    def _added(self, names: list[str]) -> Lines:
        where = "before and behind" if len(names) == 2 else "before"
        what = "sum" if self.axis("out") is None else "result"
        product = f"the product of {'parts' if len(names) == 2 else 'the part'}"
        lines = [
            f"def added(c, turn, {', '.join(names)}):",
            f'    """Return the {what} with {product} from so many devices {where}."""',
        ]
        for half, name in enumerate(names):
            device = f"(me {'+' if half else '-'} turn)"
            lines += [f"    {line}" for line in self._one(name, device, half)]
        return [*lines, "    return c"]

    def _one(self, name: str, device: str, half: int) -> Lines:
        other: Side = "rhs" if self.loop.side == "lhs" else "lhs"
        axis, out = self.axis(other), self.axis("out")
        lines = [f"start = {self.start(device, half)}"]
        stays = self.staying if axis is None else "own"
        if axis is not None:
            lines.append(f"own = {self.sliced(self.staying, 'start', axis)}")
        pair = (name, stays) if self.loop.side == "lhs" else (stays, name)
        made = self.multiplied(*pair)
        if out is None:
            return [*lines, f"c += {made}"]
        return [
            *lines,
            f"part = {made}",
            f"c = lax.dynamic_update_slice_in_dim(c, part, start, axis={out})",
        ]

    def _turned(self, names: list[str], zeros: str, hops: Lines) -> Lines:
        given = ", ".join(names)
        if self.loop.count <= UNROLLED:
            return [
                f"c = added({zeros}, 0, {given})",
                f"for turn in range(1, {self.loop.count}):",
                *(f"    {hop}" for hop in hops),
                f"    c = added(c, turn, {given})",
            ]
        return [
            "def turned(turn, carry):",
            '    """Return the sum and the parts after one turn more."""',
            f"    c, {given} = carry",
            *(f"    {hop}" for hop in hops),
            f"    return added(c, turn, {given}), {given}",
            "",
            f"c = added({zeros}, 0, {given})",
            f"c, *_ = lax.fori_loop(1, {self.loop.count}, turned, (c, {given}))",
        ]


class _Scattered(_Rotation):
    """A loop that scatters the result: each part travels around the ring, and every device adds its
    term."""

    def lines(self) -> Lines:
        both = self.loop.directions == 2
        ways = ("up", "down") if both else ("down",)
        # A part ends at its own device, so it starts at the next device in its direction of travel.
        signs = {"up": "-", "down": "+"}
        lines = [*self.ring_lines(ways), "", *self._term(), ""]
        names = ["low", "high"] if both else ["c"]
        terms = [
            (
                name,
                way,
                f"term(me {signs[way]} 1 {signs[way]} turn{', ' + str(half) if both else ''})",
            )
            for half, (name, way) in enumerate(zip(names, ways, strict=True))
        ]
        lines += self._turned(terms)
        if both:
            lines.append(f"c = jnp.concatenate([low, high], axis={self.axis('out')})")
        return lines

    def _term(self) -> Lines:
        both = self.loop.directions == 2
        lines = [
            f"def term(device{', half' if both else ''}):",
            '    """Return the term of this device of the part that a device is to have."""',
            f"    start = {self.start('device', 0)}" + (self._half if both else ""),
        ]
        given = []
        for name, side in (("a", "lhs"), ("b", "rhs")):
            axis = self.axis("lhs" if side == "lhs" else "rhs")
            if axis is None:
                given.append(name)
            else:
                lines.append(f"    {name}_part = {self.sliced(name, 'start', axis)}")
                given.append(f"{name}_part")
        made = self.multiplied(*given)
        narrow = self.matmul.out_dtype != self.matmul.sum_dtype
        return [*lines, f"    return {made}{'.astype(OUT_DTYPE)' if narrow else ''}"]

    @property
    def _half(self) -> str:
        return " + half" + (f" * {self.step}" if self.step > 1 else "")

    def _turned(self, terms: list[tuple[str, str, str]]) -> Lines:
        def first(term: str) -> str:
            return term.replace(" + turn", "").replace(" - turn", "")

        hops = [f"lax.ppermute({name}, {self.ring.axes}, {way})" for name, way, _ in terms]
        starts = [f"{name} = {first(term)}" for name, _, term in terms]
        adds = [
            f"{name} = {hop} + {term}" for (name, _, term), hop in zip(terms, hops, strict=True)
        ]
        if self.loop.count <= UNROLLED:
            turns = [f"for turn in range(1, {self.loop.count}):", *(f"    {add}" for add in adds)]
            return [*starts, *turns]
        names = ", ".join(name for name, _, _ in terms)
        carry = f"({names})" if len(terms) > 1 else names
        return [
            "def turned(turn, carry):",
            '    """Return the parts after one turn more."""',
            f"    {names} = carry",
            *(f"    {add}" for add in adds),
            f"    return {names}",
            "",
            *starts,
            f"{names} = lax.fori_loop(1, {self.loop.count}, turned, {carry})",
        ]
