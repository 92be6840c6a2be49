"""The time of an all-to-all on a torus whose devices send to a few receivers at a time, relative to
the time that its busiest link needs, so 1 is the minimum. The times come from a model, without a
TPU: all links and directions have equal bandwidth, shared fairly by the flows in flight, which take
one axis after another.

The order of receivers comes from the events of emitted kernels; in earlier kernels, the receivers
were in order of distance. Six messages are in flight at a time, like chunks of unaligned tiles. The
table is written to `receivers.md`.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.kernel_forms.windows import SLOTS
from shardwright.codegen.operations.emit.modules import parts

RESULT = Path(__file__).parent / "receivers.md"
TORI = ((8,), (16,), (4, 4), (4, 8), (8, 8), (16, 16), (2, 2, 2), (4, 4, 4), (8, 8, 8))
Direction = tuple[int, int]
"""An axis, and the direction along it, 1 or -1."""
Hops = Counter[Direction]


def order(devices: int) -> list[int]:
    """Return the distances from a device to its receivers, in the order in which the kernel of an
    all-to-all sends."""
    from shardwright.codegen.backends.pallas_tpu.verify.contract import programs_of
    from shardwright.codegen.backends.pallas_tpu.verify.events import Copy
    from shardwright.codegen.backends.pallas_tpu.verify.trace import traced_half
    from shardwright.codegen.checks.load import load

    mesh, extent = sw.Mesh({"x": devices}), 128 * devices
    sides = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    plan = sw.plan(sw.Reshard((extent, extent), "bfloat16", *sides), "direct")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pallas_tpu.py"
        made = parts(plan, "pallas_tpu", "shardwright emit", single_file=True)
        path.write_text(made[0].text)
        module = load(path)
    (program,) = programs_of(module)
    events = traced_half(module, program, program.kernel)[0]
    return [event.to for event in events if isinstance(event, Copy) and event.sent]


def hops(offset: int, sizes: Sequence[int]) -> Hops:
    """Return the number of hops in each direction to the device at an offset. Messages take the
    shorter way around each axis; if the device is exactly half way around, half of each message
    goes each way."""
    found = Hops()
    for axis in reversed(range(len(sizes))):
        offset, digit = divmod(offset, sizes[axis])
        for way, length in ((1, digit), (-1, sizes[axis] - digit)):
            if digit and 2 * length <= sizes[axis]:
                found[axis, way] += length if 2 * length < sizes[axis] else length / 2
    return found


def rates(flows: list[Hops]) -> list[float]:
    """Return the rate of each flow if links are shared fairly. All devices send alike, so a link in
    a direction carries each flow once for each of its hops in that direction."""
    rate, used = [0.0] * len(flows), Counter[Direction]()
    active = set(range(len(flows)))
    # Raise all active rates together until a link is full. The flows on that link then keep their
    # rates.
    while active:
        load = sum((flows[k] for k in active), Hops())
        more = min((1 - used[way]) / hops for way, hops in load.items())
        for way, hops in load.items():
            used[way] += more * hops
        for k in active:
            rate[k] += more
        active = {k for k in active if all(used[way] < 1 - 1e-9 for way in flows[k])}
    return rate


def over_least(offsets: Sequence[int], sizes: Sequence[int], at_a_time: int = SLOTS) -> float:
    """Return the time of all sends, divided by the time that the busiest link needs. Sends start in
    the order of `offsets`, with at most `at_a_time` in flight."""
    waiting = [hops(offset, sizes) for offset in offsets][::-1]
    least, time, going = max(sum(waiting, Hops()).values()), 0.0, list[tuple[float, Hops]]()
    while waiting or going:
        while waiting and len(going) < at_a_time:
            going.append((1.0, waiting.pop()))
        speed = rates([flow for _, flow in going])
        step = min(left / rate for (left, _), rate in zip(going, speed, strict=True))
        left = [(rest - step * rate, flow) for (rest, flow), rate in zip(going, speed, strict=True)]
        going, time = [each for each in left if each[0] > 1e-9], time + step
    return time / least


def main() -> None:
    lines = [
        "# All-to-alls over tori, six receivers at a time",
        "",
        "Time relative to that of the busiest link, by a model of fairly shared links. Before:",
        "receivers in order of distance.",
        "",
        "| torus | now | before |",
        "| --- | ---: | ---: |",
    ]
    for sizes in TORI:
        offsets = order(math.prod(sizes))
        now, before = over_least(offsets, sizes), over_least(sorted(offsets), sizes)
        lines.append(f"| {'x'.join(map(str, sizes))} | {now:.2f} | {before:.2f} |")
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
