"""Loops, branches, what is computed again and manual parts: values beside one device, what reports
say, planted faults."""

from __future__ import annotations

import itertools

import flow_cases
import jax
import pytest
from programs import findings
from sweeps import swept

import shardwright as sw

MESH = sw.Mesh({"d": 2, "t": 2})
MODES = ("cheapest", "as_shardy")


def run(*words: str) -> dict[str, str]:
    found: dict[str, str] = findings("flow_process.py", *words)
    return found


def wrong(found: dict[str, str]) -> dict[str, str]:
    return {name: said for name, said in found.items() if said}


@pytest.mark.slow
def test_every_case_has_one_devices_values() -> None:
    found = run("cases", "2x2", "cheapest", "forward")
    assert wrong(found) == {}
    assert len(found) == 22


RUNS = [*itertools.product(("gradients", "forward"), ("2x2", "2x4", "1x1"), MODES)]


@pytest.mark.parametrize("number", swept(range(len(RUNS)), 6))
def test_every_case_in_every_mode(number: int) -> None:
    what, sizes, mode = RUNS[number]
    assert wrong(run("cases", sizes, mode, what)) == {}


def test_random_functions_have_one_devices_values() -> None:
    """One in each mode."""
    assert wrong(run("random", "1", "3")) == {}


@pytest.mark.parametrize("start", swept(range(0, 120, 8), 80))
def test_the_sweep_of_random_functions_of_loops(start: int) -> None:
    """Of 120 functions, most with gradients, each in one mode on one of four meshes."""
    assert wrong(run("random", str(start), str(start + 8))) == {}


def test_modules_have_gradients_too() -> None:
    found = run("outside")
    assert found["as it is"] == found["along a split dimension"] == ""
    assert "off by" in found["held to be whole"]


@pytest.mark.parametrize("start", swept(range(0, 120, 6), 120))
def test_the_gradients_of_modules_of_random_functions(start: int) -> None:
    """Of loops, branches and manual parts, each in one mode on one of four meshes."""
    assert wrong(run("random", str(start), str(start + 6), "outside")) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_every_case_has_a_gradient_of_its_module(mode: str) -> None:
    assert wrong(run("cases", "2x4", mode, "outside")) == {}


@pytest.mark.slow
def test_planted_faults_are_found() -> None:
    found = run("faults")
    assert [name for name, said in found.items() if "off by" not in said] == []
    assert len(found) == 7


def partitioned(name: str, mode: str = "cheapest", mesh: sw.Mesh = MESH) -> sw.Partitioned:
    case = flow_cases.flow_cases()[name]
    return sw.partition(case.fn, *case.avals, mesh=mesh, in_shardings=case.inputs, mode=mode)


def said(program: sw.Partitioned) -> list[str]:
    return list(map(str, program.communications))


def test_gradients_of_micro_batches_are_summed_after_the_loop() -> None:
    found = said(partitioned("micro-batches"))
    assert found[-1] == (
        "[C2] all-reduce of 3 values over d, 2.004 KiB: result[0] and 2 like it must be reduced; "
        "one all-reduce after the loop instead of 4 in it, each value"
    )
    assert sum("after the loop" in each for each in found) == 1


def test_a_sum_is_made_in_the_loop_where_memory_is_scarce() -> None:
    """As terms, the gradient of a weight that is split over d is whole on every device."""

    def step(w: jax.Array, batches: jax.Array) -> jax.Array:
        def body(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
            return total + x.T @ jax.numpy.tanh(x @ w), None

        return jax.lax.scan(body, jax.numpy.zeros_like(w), batches)[0]

    avals = (flow_cases.shaped(256, 256), flow_cases.shaped(8, 512, 256))
    given = ('[{"d"}, {}]', '[{}, {"d"}, {}]')
    sides = {"in_shardings": given, "out_shardings": '[{"d"}, {}]', "mode": "cheapest"}
    mesh = sw.Mesh({"d": 4})
    free = sw.partition(step, *avals, mesh=mesh, **sides)
    assert [each.times for each in free.communications] == [1, 1]
    tight = sw.partition(step, *avals, mesh=mesh, memory_limit=2_200_000, **sides)
    assert max(each.times for each in tight.communications) == 8
    assert tight.bytes_received > free.bytes_received


def test_loops_of_unknown_length_and_branches_say_how_often() -> None:
    found = said(partitioned("while"))
    assert found[:2] == [
        "[C1] all-reduce over d, 4 B, each loop test: gt needs the reduced value of goes_on_max, "
        'which is a partial maximum over "d"',
        "[C2] all-reduce over t, 256 B, each iteration: sin needs the reduced value of layer, "
        'which is a partial sum over "t"',
    ]
    program = partitioned("branch by an element", "as_shardy")
    assert '"where": "if branch 1 is taken"' in program.to_json()
    assert any("if branch 1 is taken" in each for each in said(program))


def test_a_sum_leaves_a_branch_as_terms() -> None:
    """Both branches give terms, so that neither has a communication."""
    assert [each.op for each in partitioned("branch").communications] == ["all_reduce"] * 2


def test_what_is_computed_again_stays_so() -> None:
    text = sw.emit(partitioned("computed again but for a name")).files("again")["jax_spmd.py"]
    assert 'policy=jax.checkpoint_policies.save_only_these_names("hidden")' in text
    assert 'checkpoint_name(inner_tanh, "hidden")' in text
    case = flow_cases.flow_cases()["computed again"]
    sides = {"mesh": MESH, "in_shardings": case.inputs}
    program = sw.partition(jax.value_and_grad(case.fn), *case.avals, **sides)
    text = sw.emit(program).files("again")["jax_spmd.py"]
    forward, again = text.split("lax.optimization_barrier(")
    assert forward.count("jnp.tanh") == again.count("jnp.tanh") == 1
