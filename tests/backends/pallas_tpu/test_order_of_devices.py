"""A mesh whose devices do not ascend by id: the error has the ids and a mesh that will do."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

import shardwright as sw

IDS = [0, 1, 2, 3, 7, 6, 5, 4]


def test_the_order_of_make_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring of a matmul on v5e:2x4, whose device n stands at (n % 2, n // 2)."""
    pytest.importorskip("jax")
    sides = ((64, 64), "P('i')"), ((64, 512), "P(None, 'i')"), "P(None, 'i')"
    matmul = sw.Matmul("bf16", *sides, mesh="i=8")
    bundle = sw.emit(matmul, ("pallas_tpu",), topology="v5e:2x4", loop="both")
    bundle.write(tmp_path / "in_order" / "product")
    monkeypatch.syspath_prepend(str(tmp_path))
    ring = importlib.import_module("in_order.product.pallas_tpu")._RING
    support = importlib.import_module("in_order._support.pallas_order")

    def check(ids: list[int]) -> None:
        chip = {"platform": "tpu", "device_kind": "TPU v5 lite"}
        stood = [SimpleNamespace(id=n, coords=(n % 2, n // 2, 0), **chip) for n in ids]
        support.check_ring(ring, stood)

    check([*range(8)])
    with pytest.raises(ValueError, match=r"^mesh: ") as raised:
        check(IDS)
    assert (
        f"the mesh has devices in the order {IDS}, the module needs {[*range(8)]}: pass "
        "jax.sharding.Mesh(np.reshape(sorted(jax.devices(), key=lambda d: d.id), "
        "mesh.devices.shape), mesh.axis_names)"
    ) in str(raised.value)
