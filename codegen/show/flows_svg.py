"""The picture of a relayout as a standalone SVG: a table of the bytes between devices."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np
import numpy.typing as npt

from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.show.svg_text import FAINT, INK, Span, box, root, text_lines
from shardwright.ir.relayout import RelayoutPlan

DRAWN = 16
"""The maximum number of devices drawn on each side."""
MARGIN, LEFT, TOP, WIDTH, HEIGHT, SMALL = 24, 110, 92, 84, 30, 12
LIGHT, DARK = (255, 244, 221), (240, 160, 60)
EMPTY, KEPT = "#f2f3f5", "#ffffff"


def flows_svg(plan: RelayoutPlan) -> str:
    """Return the picture of a relayout as deterministic SVG."""
    senders, receivers = (
        list(side.mesh.device_ids) for side in (plan.relayout.source, plan.relayout.target)
    )
    count = flows(plan)[:DRAWN, :DRAWN]
    rows, columns = count.shape
    size = (max(LEFT + columns * WIDTH, 560) + MARGIN, TOP + rows * HEIGHT + MARGIN + 20)
    title = flows_title(plan)
    cut = len(senders) > DRAWN or len(receivers) > DRAWN
    note = f"The first {DRAWN} devices of each side are drawn." if cut else ""
    spans = [
        Span(MARGIN, 32, title, 15, anchor="start").within(size[0] - 2 * MARGIN),
        Span(LEFT, TOP - 28, "receiver", SMALL, FAINT, "start"),
        Span(MARGIN, TOP - 8, "sender", SMALL, FAINT, "start"),
        *(_head(LEFT + (i + 0.5) * WIDTH, TOP - 8, receivers[i]) for i in range(columns)),
        *(_head(MARGIN + 16, TOP + (i + 0.65) * HEIGHT, senders[i]) for i in range(rows)),
        Span(MARGIN, size[1] - 14, note, SMALL, FAINT, "start"),
    ]
    lines = [
        root(*size),
        f"<title>{escape(title, quote=False)}</title>",
        box(0, 0, *size, KEPT),
        *_cells(count, senders, receivers),
        *text_lines(span for span in spans if span.text),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def flows(plan: RelayoutPlan) -> npt.NDArray[np.int64]:
    """Return the bytes that each source device (rows) sends to each other target device
    (columns)."""
    relayout = plan.relayout
    senders, receivers = (
        {device: place for place, device in enumerate(side.mesh.device_ids)}
        for side in (relayout.source, relayout.target)
    )
    found = np.zeros((len(senders), len(receivers)), dtype=np.int64)
    for relay in plan.moved:
        size = relay.elements * relayout.source.in_bytes.itemsize
        found[senders[relay.sender], receivers[relay.receiver]] += size
    return found


def flows_title(plan: RelayoutPlan) -> str:
    """Return one line: the tensors, the numbers of devices, and the total bytes."""
    source, target = plan.relayout.source, plan.relayout.target
    listed = ", ".join(source.tensors)
    return (
        f"Moves {listed} from {source.mesh.size} to {target.mesh.size} devices, "
        f"{size_text(plan.total)} in all"
    )


def _head(x: float, y: float, device: int) -> Span:
    return Span(x, y, f"{device}", SMALL)


def _cells(count: npt.NDArray[np.int64], senders: list[int], receivers: list[int]) -> Iterator[str]:
    most = max(int(count.max(initial=0)), 1)
    spans = []
    for (row, column), size in np.ndenumerate(count):
        x, y = LEFT + column * WIDTH, TOP + row * HEIGHT
        yield box(x, y, WIDTH - 2, HEIGHT - 2, _colour(int(size) / most) if size else EMPTY)
        own = senders[row] == receivers[column]
        text = size_text(int(size)) if size else "itself" if own else ""
        colour = INK if size else FAINT
        spans.append(Span(x + WIDTH / 2 - 1, y + 0.62 * HEIGHT, text, SMALL, colour))
    yield from text_lines(span for span in spans if span.text)


def _colour(part: float) -> str:
    """Return the colour of a box. `part`: its bytes divided by the maximum bytes of any box."""
    levels = (round(low + part * (high - low)) for low, high in zip(LIGHT, DARK, strict=True))
    return "#" + "".join(f"{level:02x}" for level in levels)
