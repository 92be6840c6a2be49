"""`verify` of programs: values on every device beside one device's, bytes beside the HLO's; what is
planted in a module is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_program import MODULE, TABLE, forgotten, replaced, written
from commands import run
from sweeps import sampled

MIXED = """\
import jax, jax.numpy as jnp


def step(w, x, mask, ids):
    def body(c, w):
        return jnp.where(mask[:, None], jnp.tanh(c @ w), c), c.sum()

    h, sums = jax.lax.scan(body, x, w)
    return h, sums, jnp.take(h, ids, axis=0).astype(jnp.float32), ids * 2


def arguments():
    shape = jax.ShapeDtypeStruct
    narrow = jnp.bfloat16
    return (
        shape((3, 16, 16), narrow), shape((8, 16), narrow), shape((8,), bool),
        shape((8,), jnp.int32),
    )


inputs = ('[{}, {"t"}, {}]', '[{"d"}, {}]', '[{"d"}]', '[{"d"}]')
"""
SUMMED = replaced(MODULE, ('@ p["w2"]\n', '@ p["w2"] + jnp.tanh(x).sum(0)\n'))
LOOP = """\
import jax, jax.numpy as jnp


def step(w, x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=2)[0]


def arguments():
    return jax.ShapeDtypeStruct((8, 8), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.float32)


inputs = '[{"d"}, {}]', '[{"d"}, {}]'
"""
SEEN = ("a dropped sum",)
"""Planted in every run: seen by values, by bytes, by what replicas hold."""
FAULTS = {
    "a dropped sum": (('lax.psum(dot_general_2, "t")', "dot_general_2 * 1"), "off by"),
    "a sum too many": (('x @ p["w1"]', 'lax.psum(x @ p["w1"], "d")'), "off by"),
    "a sum after what is not linear": (
        ("jnp.sum(tanh_2, axis=0)", 'jnp.sum(jnp.tanh(lax.psum(x, "d")), axis=0) / 4'),
        "off by",
    ),
    "one replica that differs": (
        ("return out", 'return out + jnp.where(lax.axis_index("t") == 1, 0.5, 0.0)'),
        "device 1: off by",
    ),
    "a communication that is not reported": (('"bytes": 96,', '"bytes": 95,'), "223 bytes"),
    "what moves and is not used": (
        ("return out", 'return out + 0 * jnp.sum(lax.all_gather(x, "d"))'),
        "states 224 bytes",
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_narrow_floats_truth_values_integers_and_loops(home: Path) -> None:
    """None of them is a false alarm; the bytes of a loop count as often as it turns."""
    written(home, MIXED, TABLE.replace("1KiB", "1MiB"))
    assert run("emit").code == 0
    done = run("verify")
    assert (done.code, done.err) == (0, "")
    module = home / "generated/mlp/jax_spmd.py"
    text = module.read_text()
    assert "lax.scan" in text
    assert "lax.all_gather" in text
    module.write_text(text.replace("jnp.tanh(body_dot", "jnp.sin(body_dot"))
    assert module.read_text() != text
    done = run("verify")
    assert done.code == 1
    assert "off by" in done.out
    forgotten()


@pytest.mark.parametrize("name", sampled(FAULTS, *SEEN))
def test_planted_faults_are_found(name: str, home: Path) -> None:
    written(home, SUMMED)
    assert run("emit").code == 0
    pair, said = FAULTS[name]
    module, plan = (home / "generated/mlp" / file for file in ("jax_spmd.py", "plan.json"))
    if "bytes" in pair[0]:
        plan.write_text(replaced(plan.read_text(), pair))
    else:
        unchecked = ("check_vma=True", "check_vma=False")
        module.write_text(replaced(module.read_text(), pair, unchecked))
    done = run("verify")
    assert done.code == 1
    assert said in " ".join(done.out.split())
    forgotten()


def test_a_wrong_gradient_is_found_where_values_are_right(home: Path) -> None:
    """Without jax's own checks, a gather held to be whole gets the gradient of one device alone."""
    written(home, LOOP, TABLE.replace("1KiB", "1MiB"))
    assert run("emit").code == 0
    module = home / "generated/mlp/jax_spmd.py"
    module.write_text(replaced(module.read_text(), ("tiled=True)", 'tiled=True, to="invarying")')))
    done = run("verify")
    assert done.code == 1
    assert "gradient: result 0: device 0: off by" in " ".join(done.out.split())
    forgotten()
