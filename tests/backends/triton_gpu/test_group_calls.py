"""What a group of Triton modules is called with: lists, dicts, nested ones; gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from every_feature import EVERY
from gpu_cases import make

from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.emit.group import group_files
from shardwright.codegen.operations.emit.write import write_bundles
from shardwright.codegen.spec.group import Group

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")

RESHARDS = {
    "a_w": make({"x": 2, "y": 2}, (6, 8), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "a_b": make({"x": 2, "y": 2}, (8,), '[{"x"}]', '[{"x", "y"}]'),
    "ids": make({"x": 2, "y": 2}, (8,), '[{"x", "y"}]', '[{"y", "x"}]', dtype="int32"),
}


def written(folder: Path, *, gradient: bool = True) -> Any:
    """The module of a group of all."""
    for name, reshard in RESHARDS.items():
        emit(reshard, ("triton_gpu",), "direct", gradient=gradient, features=EVERY).write(
            folder / name
        )
    group, plans = Group("all", tuple(RESHARDS)), {n: plan(r) for n, r in RESHARDS.items()}
    write_bundles(folder, (), ((group, group_files(group, plans, ("triton_gpu",))),))
    return load(folder / "all" / "triton_gpu.py")


def shards(module: Any, side: str) -> dict[str, list[Any]]:
    """Shards of a side of tensors of the numbers of their elements."""
    found: dict[str, list[Any]] = {}
    for name, reshard in RESHARDS.items():
        host = module._HOST.members[name]
        ends, shape = getattr(host.exchange, side), getattr(host, f"{side}_shape")
        count = torch.Size(reshard.shape).numel()
        whole = torch.arange(count).to(host.dtype).view(reshard.shape)
        found[name] = []
        for device in sorted(ends.ids):
            box = ends.box(ends.position(device, side))
            cut = tuple(slice(*box[at : at + 2]) for at in range(0, len(box), 2))
            found[name].append(whole[cut].reshape(shape(device)).clone())
    return found


def test_containers(tmp_path: Path) -> None:
    module = written(tmp_path)
    given, wanted = shards(module, "source"), shards(module, "target")
    nested = {"ids": given["ids"], "a": {"b": given["a_b"], "w": given["a_w"]}}
    moved = module.reshard_local(nested)
    assert [*moved] == ["ids", "a"]
    flat = {"a_w": moved["a"]["w"], "a_b": moved["a"]["b"], "ids": moved["ids"]}
    listed = module.reshard_local(list(given.values()))
    dotted = module.reshard_local({name.replace("_", "."): each for name, each in given.items()})
    for results in (
        flat,
        dict(zip(given, listed, strict=True)),
        dict(zip(given, dotted.values(), strict=True)),
    ):
        for name, each in wanted.items():
            assert all(a.equal(b) for a, b in zip(results[name], each, strict=True)), name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: {**given, "c": []}, "source shards: unknown name c"),
        (lambda given: {"a_w": given["a_w"]}, "source shards: a_b is missing, ids is missing"),
        (
            lambda given: {**given, "a.w": given["a_w"]},
            "source shards: got 4 keys that make only 3 names",
        ),
        (lambda given: [*given.values()][:2], "source shards: got 2, expected 3"),
        (lambda given: {**given, "a_b": given["a_b"][:3]}, "a_b: got 3 source shards, expected 4"),
    ],
)
def test_what_is_wrong_is_named(change: Any, said: str, tmp_path: Path) -> None:
    module = written(tmp_path)
    with pytest.raises(ValueError, match="source shards") as caught:
        module.reshard_local(change(shards(module, "source")))
    assert str(caught.value) == said


def test_gradients_go_back_as_a_group(tmp_path: Path) -> None:
    module = written(tmp_path)
    given, wanted = shards(module, "source"), shards(module, "target")
    floats = [each for name in ("a_w", "a_b") for each in given[name]]
    for shard in floats:
        shard.requires_grad_()
    moved = module.reshard_local(given)
    assert all(a.equal(b) for a, b in zip(moved["ids"], wanted["ids"], strict=True))
    ends = [each for name in ("a_w", "a_b") for each in moved[name]]
    torch.autograd.backward(ends, [each for name in ("a_w", "a_b") for each in wanted[name]])
    assert all(shard.grad.equal(shard.detach()) for shard in floats)


def test_shards_with_gradients_are_counted(tmp_path: Path) -> None:
    """A shard too few of one tensor and one too many of the next."""
    module = written(tmp_path)
    given = shards(module, "source")
    first, second = ([x.requires_grad_() for x in given[name]] for name in ("a_w", "a_b"))
    moved = {**given, "a_w": first[:3], "a_b": [first[3], *second]}
    with pytest.raises(ValueError, match="got") as caught:
        module.reshard_local(moved)
    assert str(caught.value) == "a_w: got 3 source shards, expected 4"


def test_there_is_no_gradient_without_the_reverse(tmp_path: Path) -> None:
    module = written(tmp_path, gradient=False)
    given = shards(module, "source")
    given["a_w"][0].requires_grad_()
    said = (
        "a source shard requires a gradient, but this module has none: emit it with gradient=True "
        "(--gradient), or call it in torch.no_grad()"
    )
    with pytest.raises(ValueError, match="requires a gradient") as caught:
        module.reshard_local(given)
    assert str(caught.value) == said
    with torch.no_grad():
        module.reshard_local(given)
