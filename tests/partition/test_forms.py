"""Local forms beside one device: values, bytes by the HLO, and no more of them than expected."""

from __future__ import annotations

import jax
import pytest
from programs import findings
from sweeps import kept, swept

import shardwright as sw

MODES = ("as_shardy", "cheapest")
QUICK = (
    *("gradient of cumsum", "top 3", "gradient of embedding", "gradient of pool over a border"),
    "halves put together",
)


def run(*words: str, script: str = "form_process.py") -> dict[str, str]:
    found: dict[str, str] = findings(script, *words)
    return found


def wrong(found: dict[str, str]) -> dict[str, str]:
    return {name: said for name, said in found.items() if said}


def test_forms_have_one_devices_values_and_few_bytes() -> None:
    found = run("values", "as_shardy", *QUICK)
    assert wrong(found) == {}
    assert set(found) == set(QUICK)


@pytest.mark.parametrize("mode", kept(MODES, "cheapest"))
def test_every_form_has_one_devices_values_and_few_bytes(mode: str) -> None:
    assert wrong(run("values", mode)) == {}


@pytest.mark.slow
def test_planted_faults_are_found() -> None:
    found = run("faults")
    missed = [n for n, said in found.items() if "off by" not in said and "other" not in said]
    assert missed == []


@pytest.mark.slow
def test_random_functions_with_forms_have_one_devices_values() -> None:
    """Gradients of the first seeds of the sweep below."""
    assert wrong(run("formed", "0", "2", script="emitted_process.py")) == {}


@pytest.mark.parametrize("start", swept(range(0, 96, 4), 48))
def test_the_sweep_of_random_functions_with_forms(start: int) -> None:
    assert wrong(run("formed", str(start), str(start + 4), script="emitted_process.py")) == {}


def test_every_communication_of_a_form_has_its_seconds() -> None:
    """Those too of which the busiest device receives nothing: of two shards each gets its halo."""
    mesh, where = sw.Mesh({"t": 2}), '[{"t"}, {}]'
    x = jax.ShapeDtypeStruct((16, 4), "float32")
    window = ((3, 1), (1, 1), "SAME")
    program = sw.partition(
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, *window),
        x,
        mesh=mesh,
        in_shardings=(where,),
        out_shardings=where,
    )
    assert [each.received for each in program.communications] == [16, 0]
    assert len(program.seconds("v5e:2x4")) == 2
    assert '"received": 0' in program.to_json("v5e:2x4")
