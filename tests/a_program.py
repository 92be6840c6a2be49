"""A small program in a folder with a config, for commands to be run there."""

from __future__ import annotations

import sys
from pathlib import Path

MODULE = """\
import jax, jax.numpy as jnp


def step(p, x):
    return jnp.tanh(x @ p["w1"]) @ p["w2"]


def arguments():
    shape = lambda *n: jax.ShapeDtypeStruct(n, jnp.float32)
    return {"w1": shape(16, 32), "w2": shape(32, 16)}, shape(8, 16)


inputs = ({"w1": '[{}, {"t"}]', "w2": '[{"t"}, {}]'}, '[{"d"}, {}]')
"""
TABLE = """\
[[program]]
name = "mlp"
mesh = "d=4,t=2"
function = "a_step:step"
arguments = "a_step:arguments"
in_shardings = "a_step:inputs"
budget = "1KiB"
"""


def written(folder: Path, module: str = MODULE, table: str = TABLE) -> None:
    """Write the function and its config, to be imported anew."""
    (folder / "a_step.py").write_text(module)
    (folder / "shardwright.toml").write_text(table)
    forgotten()


def forgotten() -> None:
    """Forget the function, which is imported anew."""
    sys.modules.pop("a_step", None)


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """A text with other parts, each of which is there."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text
