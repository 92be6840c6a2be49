"""The padded ends of values that enter and leave loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardwright.codegen.ops.fills import DTYPES
from shardwright.codegen.ops.kind import Dims
from shardwright.codegen.partition.local.end_values import EndValues
from shardwright.codegen.partition.local.ports import End, Port

PortEnds = dict[End, Dims]
"""The padded dimensions of the values at the ends of ports."""


def entering(ports: Iterable[Port], values: EndValues) -> PortEnds:
    """Return the padded ends at the ports that lead into bodies. A carry has these ends in every
    iteration."""
    return {
        end: dims
        for port in ports
        if port.op.param("role") in ("takes", "carries")
        for end, dims in _of_port(port, values)
    }


def leaving(ports: Iterable[Port], values: EndValues) -> PortEnds:
    """Return the padded ends at the ports that lead out of bodies, whose ops are already padded."""
    return {
        end: dims
        for port in ports
        if port.op.param("role") == "gives"
        for end, dims in _of_port(port, values)
    }


def _of_port(port: Port, values: EndValues) -> Iterator[tuple[End, Dims]]:
    """Yield each end of a port with its padded dimensions: those that are padded in an operand or
    should be in a result."""
    op, rule = port.op, port.op.rule
    count, tensors = len(op.operands), (*op.operands, *op.results)
    factors: set[int] = set()
    if rule is not None and all(values.given[v].dtype in DTYPES for v in tensors):
        for tensor, value in enumerate(tensors):
            for dim, own in enumerate(rule.tensors[tensor]):
                is_padded = dim in values.ends[value]
                if is_padded if tensor < count else values.is_wanted(value, dim):
                    factors.update(own)
        factors.difference_update(rule.need_replication)
    for tensor, end in enumerate(port.ends):
        dims = () if rule is None else enumerate(rule.tensors[tensor])
        yield end, frozenset(dim for dim, own in dims if factors & {*own})
