"""What we propagate, and our rules, beside Shardy's own passes."""

from __future__ import annotations

from typing import Any

import pytest
from programs import findings

STRATEGIES = ("dp", "fsdp", "tp", "fsdp+tp", "tp+sp", "dp+tp+sp", "tp+sp+g", "dp+tp+sp+g")
MODELS = ("mlp", "mlp_step", "attention", "layer", "layer_step")

# What the passes have no rule for, and stop at: ops of CHLO and what is called.
NO_RULE = {
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "digamma", "erf", "erfc"),
    *("erf_inv", "lgamma", "square", "nextafter", "top_k", "optimization_barrier"),
    *("argmax", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
}
SEVERAL_OPS = {"bessel_i0e", "split", "conj", "exp2", "logistic", "stop_gradient"}  # or none


def run(*words: str) -> dict[str, tuple[list[str], int]]:
    found: dict[str, Any] = findings("parity_process.py", *words)
    return {name: (differences, count) for name, (differences, count) in found.items()}


def same(found: dict[str, tuple[list[str], int]]) -> int:
    """Nothing differs; how many shardings were compared."""
    assert {name: d for name, (d, _) in found.items() if d} == {}
    return sum(count for _, count in found.values())


def test_models() -> None:
    assert same(run("models", "mlp_step:fsdp+tp", "layer_step:dp+tp+sp+g")) > 500


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_model_in_every_strategy(model: str) -> None:
    found = run("models", *(f"{model}:{strategy}" for strategy in STRATEGIES))
    assert len(found) == len(STRATEGIES)
    assert same(found) > 100


def test_a_training_step_of_gpt2() -> None:
    """Embeddings and a tied head (gather, scatter), norms, attention, cross entropy, Adam."""
    assert same(run("gpt2", "1", "fsdp+tp")) > 1000


@pytest.mark.slow
def test_a_training_step_of_gpt2_in_every_strategy() -> None:
    assert same(run("gpt2", "3", "dp", "fsdp", "tp", "fsdp+tp")) > 8000


def test_more_models() -> None:
    """Convolutions, experts, dropout, clipped gradients, rotary positions, a cache."""
    found = run("more")
    assert len(found) == 9
    assert same(found) > 700


def test_random_functions() -> None:
    assert same(run("random", "plain", "0", "12")) > 400
    assert same(run("random", "rich", "0", "12")) > 400


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 150, 50))
def test_many_random_functions(first: int) -> None:
    assert same(run("random", "plain", str(first), str(first + 50))) > 2000


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 150, 50))
def test_many_random_functions_with_all_that_can_be_said(first: int) -> None:
    assert same(run("random", "rich", str(first), str(first + 50))) > 1900


def test_random_functions_on_several_meshes() -> None:
    assert same(run("random", "meshes", "0", "10")) > 400


def test_random_functions_without_sub_axes_at_their_edges() -> None:
    assert same(run("random", "edges", "0", "10")) > 400


@pytest.mark.slow
def test_many_random_functions_without_sub_axes_at_their_edges() -> None:
    assert same(run("random", "edges", "0", "60")) > 2400


@pytest.mark.slow
def test_many_random_functions_on_several_meshes() -> None:
    assert same(run("random", "meshes", "0", "60")) > 2400


def test_loops_branches_and_manual_computations() -> None:
    found = run("control")
    assert len(found) == 9
    assert same(found) > 60


def test_origins() -> None:
    """Where an axis came from is what the passes say too."""
    models = ("mlp:fsdp+tp", "mlp_step:dp", "attention:tp+sp", "layer_step:dp+tp+sp+g")
    assert same(run("origins", *models)) > 350
    assert same(run("origins", *map(str, range(10)))) > 200


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_origins_in_every_model_and_strategy(model: str) -> None:
    least = {"mlp": 59}.get(model, 100)  # the smallest has 60 axes in all
    assert same(run("origins", *(f"{model}:{strategy}" for strategy in STRATEGIES))) > least


def test_origins_in_loops_branches_and_manual_computations() -> None:
    """Where a manual computation is given what has an axis, the passes name the computation."""
    names = ("scan", "gradient of layers", "cond", "manual, inward", "manual, outward")
    found = run("origins", *names)
    assert found.pop("manual, outward")[0] == [
        "t of %add_0: ours {'d': 'result 0 of manual_0', 't': 'w'}, Shardy's argument 1 of manual_0"
    ]
    assert same(found) > 30


def test_a_rule_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison bites: what stops at a matmul is no longer like Shardy's."""
    monkeypatch.setenv("PARITY_PLANTED", "dot_general")
    with pytest.raises(AssertionError):
        same(run("models", "mlp_step:fsdp+tp"))


def test_meshes_that_are_mixed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison bites: axes of one mesh are moved to tensors on another."""
    monkeypatch.setenv("PARITY_PLANTED", "meshes")
    with pytest.raises(AssertionError):
        same(run("random", "meshes", "0", "4"))


def test_rules() -> None:
    """Each op that lowers to one op of StableHLO has the rule that Shardy has for that."""
    found = run("rules")
    assert same(found) > 120
    assert {name for name, (_, count) in found.items() if not count} == NO_RULE | SEVERAL_OPS
