"""Gradients of relayouts in torch, beside those that torch finds of slices and concatenations."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shardwright as sw
from shardwright.codegen.checks.load import load

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")

TENSORS = {"q": (8, 3), "k": (4, 3)}


def emitted(folder: Path, source: object, target: object, mesh: str = "tp=2", **how: Any) -> Any:
    """The module of a relayout, with gradients if not `how` says otherwise."""
    dtype = how.get("dtype", "float32")
    sides = (
        sw.Stored(each, TENSORS, layout, dtype)
        for each, layout in ((how.get("before", mesh), source), (mesh, target))
    )
    gradient = how.get("gradient", True)
    bundle = sw.emit(sw.Relayout(*sides), ("triton_gpu",), gradient=gradient)
    text = bundle.files("it")["triton_gpu.py"]
    (folder / "moved.py").write_text(text)
    return load(folder / "moved.py")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows of q and k, to halves of q twice and all of k."""
    source = {"q": "q[{tp}]", "k": "k[{tp}]"}
    return emitted(tmp_path_factory.mktemp("moved"), source, "stack(0, q[{tp}], k, q[{tp}])")


def stacked(q: Any, k: Any) -> list[Any]:
    """What both devices have afterwards."""
    halves = q.split(4)
    return [torch.cat([half, k, half]) for half in halves]


def test_sums_of_copies(module: Any) -> None:
    """Of every order, for views too."""
    wide = torch.randn(8, 7, dtype=torch.float64).float()
    q, k = wide[:, 2:5].requires_grad_(), torch.randn(4, 3).requires_grad_()
    weights = [torch.randint(-4, 5, (12, 3)).float() for _ in range(2)]

    def loss(moved: list[Any]) -> Any:
        return sum((x * x * w).sum() for x, w in zip(moved, weights, strict=True))

    given = {"q": list(q.split(4)), "k": list(k.split(2))}
    (moved,) = module.reshard_local(given).values()
    found = torch.autograd.grad(loss(moved), (q, k), create_graph=True)
    expected = torch.autograd.grad(loss(stacked(q, k)), (q, k), create_graph=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    twice, wanted = (
        torch.autograd.grad(sum((each**3).sum() for each in first), (q, k))
        for first in (found, expected)
    )
    for one, other in zip(twice, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_one_rounding(tmp_path: Path) -> None:
    """bfloat16 cotangents are added in float32: 256 + 1 + 1 is 258, and 256 + 1 is 256."""
    target = "stack(0, q, k, q, q)"
    module = emitted(tmp_path, {"q": "q", "k": "k"}, target, "one=1", dtype="bfloat16")
    q, k = (torch.zeros(n, 3, dtype=torch.bfloat16, requires_grad=True) for n in (8, 4))
    ((moved,),) = module.reshard_local({"q": [q], "k": [k]}).values()
    rows = torch.cat([torch.full((n, 1), x) for n, x in ((8, 256.0), (4, 2.0), (16, 1.0))])
    moved.backward(rows.expand(28, 3).to(torch.bfloat16))
    assert (q.grad == 258).all()
    assert (k.grad == 2).all()


def test_copies_of_the_source(tmp_path: Path) -> None:
    """Each gets the sum for its element; what no target has gets none, nor has a gradient one."""
    both = "stack(0, q[{tp}], q[{tp} into(4)], k)"
    module = emitted(tmp_path, {"q": "q", "both": both}, "stack(0, q[{tp} reversed], k)")
    q = [torch.zeros(8, 3, requires_grad=True) for _ in range(2)]
    rows = [torch.zeros(10, 3, requires_grad=True) for _ in range(2)]
    ((one, other),) = module.reshard_local({"q": q, "both": rows}).values()
    weights = torch.randint(-4, 5, (2, 8, 3)).float()
    loss = (one * weights[0]).sum() + (other * weights[1]).sum()
    found = torch.autograd.grad(loss, [*q, *rows], create_graph=True)
    whole, k = torch.cat([weights[1][:4], weights[0][:4]]), weights[0][4:] + weights[1][4:]
    expected = [whole, whole]
    for device in range(2):
        halves, eighths = whole[4 * device :][:4], whole[2 * device :][:2]
        expected.append(torch.cat([halves, eighths, k]))
    assert all(map(torch.equal, found, expected))
    again = ((one**2).sum() + (other**2).sum(), [*q, *rows])
    first = torch.autograd.grad(*again, create_graph=True)
    assert refused(lambda: torch.autograd.grad(sum(map(torch.sum, first)), q)) == (
        "shards: a source that stores an element several times has no second derivative, "
        "expected a source that stores each element once"
    )


def refused(call: Any) -> str:
    with pytest.raises(ValueError, match=r"detach|expected") as caught:
        call()
    return str(caught.value)


def test_refused(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = [torch.zeros(4, 3, requires_grad=True) for _ in range(2)]
    given = {"q": learned, "k": [torch.zeros(2, 3)] * 2}
    out = {"buffer": [torch.zeros(12, 3) for _ in range(2)]}
    assert refused(lambda: module.reshard_local(given, out=out)) == (
        "shards: require a gradient, but out does not support gradients: omit it, or pass "
        "x.detach()"
    )
    wrong = {"buffer": [torch.zeros(12, 3, requires_grad=True) for _ in range(2)]}
    assert refused(lambda: module.reshard_local(given, out=wrong)) == (
        "out, buffer of device 0: got a tensor that requires a gradient, expected x.detach()"
    )
    with torch.no_grad():
        assert module.reshard_local(given, out=out)["buffer"][0] is out["buffer"][0]
    other = {"q": "q[{tp}]", "k": "k[{tp}]"}
    without = emitted(tmp_path, other, {"q": "q", "k": "k"}, gradient=False)
    assert refused(lambda: without.reshard_local(given)) == (
        "shards, q of device 0: requires a gradient, but this module has no gradient: emit it with "
        "gradient=True (--gradient), or pass x.detach()"
    )
    assert not {"BACK", "Moved", "_derived"} & {*vars(without)}
    before = '<["tp"=2], device_ids=[5, 6]>'
    apart = emitted(tmp_path, other, {"q": "q", "k": "k"}, before=before)
    monkeypatch.setattr(apart, "dist", SimpleNamespace(get_rank=lambda group: 2))
    shards = {name: each[0] for name, each in given.items()}
    assert refused(lambda: apart.reshard(shards)) == (
        "shards: require a gradient, but autograd skips the backward pass of ranks without a "
        "result: pass x.detach()"
    )
