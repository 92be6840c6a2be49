"""A group of three hundred tensors, verified in less than a minute, and how far it is."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from commands import ok

from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.verify import Report

pytest.importorskip("jax")

KINDS = {
    "wq": ("[8192, 8192]", '[{"fsdp"}, {"tp"}]', '[{"tp"}, {}]'),
    "wk": ("[1024, 8192]", '[{"fsdp"}, {"tp"}]', '[{"tp"}, {}]'),
    "wo": ("[8192, 8192]", '[{"tp"}, {"fsdp"}]', '[{}, {"tp"}]'),
    "up": ("[28672, 8192]", '[{"fsdp"}, {"tp"}]', '[{"tp"}, {}]'),
    "down": ("[8192, 28672]", '[{"tp"}, {"fsdp"}]', '[{}, {"tp"}]'),
    "norm": ("[8192]", '[{"fsdp"}]', "[{}]"),
}
HEAD = """\
[mesh]
trainer = "fsdp=4,tp=2"
server = '<["tp"=4], device_ids=[8, 9, 10, 11]>'

[[group]]
name = "weights"
mesh = "trainer"
target_mesh = "server"
dtype = "bfloat16"
backends = ["triton_gpu", "jax_xla"]
tensors = [
"""


def seconds() -> float:
    """The time that this process and those that it waited for have computed."""
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, who))


@pytest.mark.slow
def test_three_hundred_tensors(tmp_path: Path) -> None:
    """Their own kernels at full size in text, on twins in all: what moves is the group."""
    config = tmp_path / "shardwright.toml"
    tensors = [
        f"  {{name = \"layer{layer}.{name}\", shape = {shape}, source = '{a}', target = '{b}'}},"
        for layer in range(50)
        for name, (shape, a, b) in KINDS.items()
    ]
    config.write_text(HEAD + "\n".join(tensors) + "\n]\n")
    ok("emit", config)
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int, report: Report | None) -> None:
        seen.append((done, total))

    start = seconds()
    reports = verify(tmp_path / "generated" / "weights", backends=["jax_xla"], progress=progress)
    assert seconds() - start < 60
    assert [(report.name, report.verdict) for report in reports] == [
        *((f"layer0_{name}", "ok") for name in KINDS),
        ("weights", "ok"),
    ]
    assert reports[-1].detail == (
        "twins of 18 of its tensors; at full size: text; every element of every target shard (300 "
        "tensors, 12 devices) is written exactly once, from the source element of its index"
    )
    assert seen == [(done, 7) for done in range(8)]
