"""Views as buffers of relayouts: rows of a larger tensor, other orders of dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.codegen.checks.load import load

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")

TENSORS = {"gate": (2, 4, 3), "up": (2, 4, 3)}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """gate and up of experts, from one device to halves that are stacked."""
    source = sw.Stored("one=1", TENSORS, {"gate": "gate", "up": "up"}, "float32")
    halves = "stack(1, gate[{}, {tp}], up[{}, {tp}])"
    target = sw.Stored("tp=2", TENSORS, {"w13": halves}, "float32")
    path = tmp_path_factory.mktemp("views") / "moved.py"
    text = sw.emit(sw.Relayout(source, target), ("triton_gpu",)).files("it")["triton_gpu.py"]
    path.write_text(text)
    return load(path)


def test_halves_of_w13(module: Any) -> None:
    """The source is `w13[:, :F]` and `w13[:, F:]`, the result goes into columns of a larger one."""
    w13 = torch.arange(48.0).view(2, 8, 3)
    wide = [torch.full((2, 4, 5), -1.0) for _ in range(2)]
    outs = [each[..., 1:4] for each in wide]
    moved = module.reshard_local({"gate": [w13[:, :4]], "up": [w13[:, 4:]]}, out={"w13": outs})
    for device, each in enumerate(wide):
        rows = slice(2 * device, 2 * device + 2)
        assert each[..., 1:4].equal(torch.cat([w13[:, :4][:, rows], w13[:, 4:][:, rows]], 1))
        assert (each[..., [0, 4]] == -1).all()
        assert moved["w13"][device].data_ptr() == outs[device].data_ptr()


def test_one_value_for_all(module: Any) -> None:
    """A source may repeat an element."""
    gate = torch.tensor(2.0).expand(2, 4, 3)
    (first, _) = module.reshard_local({"gate": [gate], "up": [gate]})["w13"]
    assert (first == 2).all()


SHAPES = [
    (shape, order)
    for shape in ((2, 3, 4), (4, 6))
    for order in itertools.permutations(range(len(shape)))
]


@pytest.mark.parametrize(("shape", "order"), SHAPES)
def test_steps_are_those_of_the_view(module: Any, shape: tuple[int, ...], order: Any) -> None:
    """Of nested loops over a dense tensor, the elements of a view in its place."""
    around = np.arange(2 * np.prod(shape)).reshape(*[shape[d] for d in order], 2)[..., 0]
    view = around.transpose(np.argsort(order))
    strides = tuple(step // view.itemsize for step in view.strides)
    dense = np.arange(view.size).reshape(shape)
    for start, loops in (
        (0, ((view.size, 1),)),
        (0, ((4, 2), (2, 1))),
        (1, ((3, 4), (2, 2))),
        (2, ((5, 3),)),
    ):
        box = module.Box(0, 0, start, 0, tuple((times, step, 0) for times, step in loops))
        given = np.array(start)
        for times, step in loops:
            given = np.add.outer(given, step * np.arange(times))
        found = []
        for each in module.strided(box, 0, shape, strides):
            places = np.array(each.read)
            for times, step, _ in each.loops:
                places = np.add.outer(places, step * np.arange(times))
            found += places.reshape(-1).tolist()
        flat = dense.reshape(-1)[given.reshape(-1)]
        assert found == view.reshape(-1)[flat].tolist()


def refused(call: Callable[[], object]) -> str:
    """The text of the ValueError that a call raises."""
    with pytest.raises(ValueError, match="expected") as caught:
        call()
    return str(caught.value)


def test_refused(module: Any) -> None:
    whole = torch.zeros(2, 4, 3)
    given = {"gate": [whole], "up": [whole]}
    negative = {"gate": [whole], "up": [torch._neg_view(whole)]}
    assert refused(lambda: module.reshard_local(negative)) == (
        "shards, up of device 0: got a view with a pending conjugation or negation, "
        "expected x.contiguous()"
    )
    outs = {"w13": [torch.zeros(4, 3).expand(2, 4, 3)] * 2}
    assert refused(lambda: module.reshard_local(given, out=outs)) == (
        "out, w13 of device 0: got a view with overlapping elements, expected x.contiguous()"
    )
    short = {"gate": [whole], "up": [whole[:, :3]]}
    assert refused(lambda: module.reshard_local(short)) == (
        "shards, up of device 0: got torch.float32 (2, 3, 3), expected torch.float32 (2, 4, 3)"
    )


@pytest.mark.parametrize("count", [0, 2, 3])
def test_number_of_shards(module: Any, count: int) -> None:
    """Too few or too many tensors for a buffer, as sources and as results."""
    whole = torch.zeros(2, 4, 3)
    few = {"gate": [whole], "up": [whole] * count}
    assert refused(lambda: module.reshard_local(few)) == (
        f"shards, up: got {count} tensors, expected 1, one for each device"
    )
    given, some = {"gate": [whole], "up": [whole]}, 2 * count - 1
    outs = {"w13": [torch.zeros(2, 8, 3)] * max(some, 0)}
    assert refused(lambda: module.reshard_local(given, out=outs)) == (
        f"out, w13: got {max(some, 0)} tensors, expected 2, one for each device"
    )
