"""Which part each device stores: in the review page of a relayout, and in its picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from commands import ok, run
from layouts import numbers_of
from random_relayouts import drawn

import shardwright as sw
from shardwright.codegen.show.parts_svg import blocks, held_rows, parts_svg

HEADS = {"q": (32, 16), "k": (8, 16), "v": (8, 16)}
CONFIG = """
[[relayout]]
name = "vocabulary"
mesh = "tp=4"
dtype = "int8"
tensors = {w = [10, 4]}
source = "w[{tp}]"
target = "w[{tp} sized(4)]"
"""


def test_rows() -> None:
    fused = sw.Stored("fsdp=5", HEADS, sw.cut(0, "fsdp", sw.stack(0, "q", "k", "v")), "bfloat16")
    assert [*held_rows(fused)] == [
        (0, ["q[0:10]"]),
        (1, ["q[10:20]"]),
        (2, ["q[20:30]"]),
        (3, ["q[30:32], k"]),
        (4, ["v"]),
    ]
    padded = sw.Stored('<["tp"=2], device_ids=[7, 3]>', {"w": (3, 4)}, "w[{tp} sized(2)]", "int8")
    assert [*held_rows(padded)] == [(3, ["w[2:3], padding"]), (7, ["w[0:2]"])]


def test_blocks_fill_buffers() -> None:
    """As long as the buffers are, with as many elements of each tensor as the oracle says."""
    for relayout in drawn(5, 2):
        for side in (relayout.source, relayout.target):
            for name, buffer in side.bound.items():
                for device, numbers in numbers_of(side, name).items():
                    held = blocks(side, name, side.mesh.device_ids.index(device))
                    if numbers.size:
                        length = numbers.shape[buffer.dim]
                        assert sum(each.length for each in held) == length
                        line = np.moveaxis(numbers, buffer.dim, 0).reshape(length, -1)
                        full = sum(each.length for each in held if each.tensor)
                        assert full == (line.max(axis=1) >= 0).sum()


def test_the_picture() -> None:
    packed = sw.stack(0, q="tp", k='"tp":(1)2', v='"tp":(1)2')
    server = sw.Stored("tp=4", HEADS, {"qkv": packed}, "bfloat16")
    trainer = sw.Stored("tp=20", HEADS, {name: f"{name}[{{tp}}]" for name in HEADS}, "bfloat16")
    picture = parts_svg(sw.Relayout(trainer, server))
    texts = [each.text for each in ElementTree.fromstring(picture).iter() if each.text]
    assert "k[4:8]" in texts
    assert "The first 16 of 20 devices are drawn." in texts


def test_show(tmp_path: Path) -> None:
    config = tmp_path / "shardwright.toml"
    config.write_text(CONFIG)
    assert "| 2 | w[6:9] |" in ok("show", config, "vocabulary")
    ok("show", config, "vocabulary", "--svg", tmp_path / "it.svg")
    assert "padding" in (tmp_path / "it.svg").read_text()
    refused = run("show", config, "vocabulary", "--html", tmp_path / "it.html")
    assert "error: --html: relayouts have no explorer page\n" in refused.err
