"""Loaders whose ranks exchange something, each rank in a process of its own."""

from __future__ import annotations

import pytest
from strategies import exactly, message

import shardwright as sw

torch = pytest.importorskip("torch", reason="torch is not installed")

import a_collective_loader as loaders  # noqa: E402


@pytest.mark.slow
def test_collectives() -> None:
    """What ranks receive is found where it is stored, and the file says how it was learned."""
    logical = {"w": torch.empty(8, 3), "norm": torch.empty(4)}
    learned = sw.learn(loaders.load, logical=logical, ranks=[3, 5], processes=True)
    assert {name: str(each) for name, each in learned.stored.buffers.items()} == {
        "w": 'w[{"rank"}]',
        "norm": "norm",
    }
    assert "processes = true" in str(learned)


@pytest.mark.slow
def test_a_rank_that_fails() -> None:
    """The failure of a rank is said, and no rank is left waiting."""
    said = message(
        lambda: sw.learn(loaders.fails, logical={"w": (4, 2)}, ranks=[3, 5], processes=True)
    )
    lines = said.splitlines()
    assert lines[0] == "load: the loader failed on rank 5"
    assert lines[1].startswith(
        "got: FileNotFoundError: shard-5.safetensors (a_collective_loader.py, line "
    )


def test_a_loader_inside_another_function() -> None:
    def load(rank: int, tensors: dict[str, object]) -> dict[str, object]:
        return tensors

    said = message(lambda: sw.learn(load, logical={"w": (4, 2)}, ranks=2, processes=True))
    lines = said.splitlines()
    assert (
        lines[0] == "load: a loader that runs in separate processes must be a module-level function"
    )
    assert lines[1].startswith(f"got: {load.__qualname__} (")
    assert (
        lines[2:]
        == exactly(
            """
        expected: a function that `from module import name` finds, not a nested one
        """
        ).splitlines()
    )
