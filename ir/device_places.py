"""Device places: the devices on which a rule stores its tensors, either all devices of a mesh or
the devices at some positions along its axes."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.mesh import Axes, Mesh, as_integer, unknown_axis


class DevicePlace(NamedTuple):
    """The devices of a buffer: the axes of their mesh, and the device id at each mesh position."""

    axes: Axes
    devices: tuple[int, ...]


def position_of(text: str, given: object) -> int | str | tuple[int, ...]:
    if isinstance(given, str):
        return given
    if isinstance(given, list | tuple):
        numbers = tuple(as_integer(each) for each in given)
        if numbers and None not in numbers and len({*numbers}) == len(numbers):
            return tuple(each for each in numbers if each is not None)
    elif (number := as_integer(given)) is not None:
        return number
    raise InputError(
        "`at` must give a position along the axis, a list of positions, or an expression",
        argument=f"{text}, at",
        got=in_a_line(given),
        expected='3, [0, 2] or "$2 // 4"',
    )


_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluated(text: str, values: tuple[str, ...], argument: str, name: str) -> int:
    """Evaluate integer arithmetic in which `$1`, `$2`, … stand for the texts of the holes.

    `values`: the texts of the holes. `argument`, `name`: for errors, the argument and the name that
    the rule matched. Raises InputError for invalid arithmetic, and for a hole that is not a number.

    >>> evaluated("$2 // 4", ("7", "13"), "at", "")
    3
    """
    wrong = InputError(
        "a position must be computed from integers and $1, $2, … with + - * // %",
        argument=argument,
        got=f"{text} for {name}",
        expected="$2 // 4, if the second wildcard matches a number",
    )

    def value(node: ast.expr) -> int:
        match node:
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return int(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
            case ast.Constant(int(number)):
                return number
        raise wrong

    def hole(found: re.Match[str]) -> str:
        number = int(found[1]) - 1
        if not (0 <= number < len(values) and re.fullmatch(r"\d{1,18}", values[number])):
            raise wrong
        return str(int(values[number]))

    try:
        return value(ast.parse(re.sub(r"\$(\d+)", hole, text), mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        raise wrong from None


def within(mesh: Mesh, chosen: Mapping[str, tuple[int, ...]], rule: str, name: str) -> DevicePlace:
    """Return the devices at the chosen positions. Axes that `chosen` omits stay whole.

    `chosen`: positions by axis. An axis with a single chosen position is dropped from the axes of
    the result. `rule`, `name`: for errors, the text of the rule and the name that it matched.
    Raises InputError for an unknown axis and for a position outside its axis.
    """
    axes = dict(mesh.axes)
    ids = np.array(mesh.device_ids, dtype=np.int64).reshape(list(axes.values()))
    for axis, places in chosen.items():
        if axis not in axes:
            raise unknown_axis(axis, mesh).named(f"{rule}, at")
        if not all(0 <= place < mesh.sizes[axis] for place in places):
            raise InputError(
                "a position must exist along its axis",
                argument=f"{rule}, at {axis}",
                got=f"{', '.join(map(str, places))} for {name}",
                expected=f"0 to {mesh.sizes[axis] - 1}",
            )
        ids = np.take(ids, places, [*axes].index(axis))
        axes[axis] = len(places)
        if len(places) == 1:
            ids = ids.squeeze([*axes].index(axis))
            del axes[axis]
    return DevicePlace(tuple(axes.items()), tuple(ids.reshape(-1).tolist()))
