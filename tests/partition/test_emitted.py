"""Emitted programs: values beside one device's, bytes beside their HLO's, planted faults."""

from __future__ import annotations

import pytest
from programs import findings
from sweeps import kept, sampled

STRATEGIES = ("dp", "fsdp", "tp", "fsdp+tp", "tp+sp", "dp+tp+sp", "tp+sp+g", "dp+tp+sp+g")
MODES = ("as_shardy", "cheapest")
MODELS = ("mlp", "mlp_step", "attention", "layer", "layer_step")
MIXED = ("fsdp+tp", "tp+sp+g", "dp+tp+sp+g")


def run(*words: str) -> dict[str, str]:
    found: dict[str, str] = findings("emitted_process.py", *words)
    return found


def wrong(found: dict[str, str]) -> dict[str, str]:
    return {name: said for name, said in found.items() if said}


@pytest.mark.parametrize("mode", sampled(MODES, "cheapest"))
def test_a_step_has_one_devices_values(mode: str) -> None:
    assert wrong(run("models", mode, "mlp_step:fsdp+tp")) == {}


@pytest.mark.parametrize("mode", kept(MODES, "cheapest"))
@pytest.mark.parametrize("model", kept(MODELS, "mlp_step", "attention"))
def test_every_model_in_every_strategy(model: str, mode: str) -> None:
    names = [f"{model}:{strategy}" for strategy in STRATEGIES]
    assert wrong(run("models", mode, *names)) == {}


@pytest.mark.slow
def test_the_step_of_a_layer_in_mixed_strategies() -> None:
    assert wrong(run("models", "cheapest", *(f"layer_step:{each}" for each in MIXED))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_random_functions_have_one_devices_values(mode: str) -> None:
    found = run("random", mode, "rich", "0", "6", "2x2x4")
    assert wrong(found) == {}
    assert len(found) > 3


@pytest.mark.slow
def test_random_functions_and_gradients_on_small_meshes() -> None:
    """Seeds of the sweep below: each mode on two meshes."""
    assert wrong(run("sweep", "0", "4")) == {}


def test_what_was_joined_is_split() -> None:
    assert wrong(run("joined")) == {}


@pytest.mark.parametrize("start", kept((0, 80, 160), 80))
def test_the_sweep_of_random_functions(start: int) -> None:
    """Of 200 functions some, most with their gradients, each in one mode on one of four meshes."""
    assert wrong(run("sweep", str(start), str(start + 8))) == {}


def test_random_layers_have_one_devices_values() -> None:
    assert wrong(run("layered", "37", "40")) == {}


@pytest.mark.parametrize("start", kept(range(0, 120, 12), 24))
def test_the_sweep_of_random_layers(start: int) -> None:
    """Functions that are called several times, and the values that they return to later steps."""
    assert wrong(run("layered", str(start), str(start + 12))) == {}


def test_random_calls_of_users_functions_have_one_devices_values() -> None:
    assert wrong(run("calls", "8", "13")) == {}


@pytest.mark.parametrize("start", kept(range(0, 96, 8), 16))
def test_the_sweep_of_random_calls(start: int) -> None:
    """The user's functions that are written once, with their gradients."""
    assert wrong(run("calls", str(start), str(start + 8))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(0, 200, 4))
def test_every_random_function(start: int) -> None:
    """200 functions and their gradients on four meshes in both modes: the 1,554 programs whose
    arguments divide. All were right on 2026-11-23, in 20 minutes of a core; three functions had
    failed before, which is why what is joined is kept whole (`of_joined`)."""
    assert wrong(run("product", str(start), str(start + 4))) == {}


@pytest.mark.slow
def test_tensors_come_to_other_shardings() -> None:
    found = run("reshards", "88", "98")
    assert wrong(found) == {}
    for kind in ("exchange by all_to_all", "exchange by permute", "all_to_all by all_to_all of 0"):
        assert any(kind in name for name in found), kind


@pytest.mark.parametrize("start", kept((0, 100), 0))
def test_more_tensors_come_to_other_shardings(start: int) -> None:
    assert wrong(run("reshards", str(start), str(start + 36))) == {}


@pytest.mark.slow
def test_a_step_on_one_device_and_beside_axes_of_size_one() -> None:
    assert wrong(run("models", "cheapest", "mlp_step:fsdp+tp:1")) == {}
    assert wrong(run("random", "as_shardy", "rich", "0", "3", "2x1x2")) == {}


@pytest.mark.parametrize("kind", kept(("rich outside", "formed outside"), "rich outside"))
def test_the_gradients_of_modules_of_random_functions(kind: str) -> None:
    """Those that jax makes of what is emitted."""
    assert wrong(run("random", "cheapest", kind, "200", "203", "2x4")) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mode"), zip(("plain", "rich"), MODES, strict=True))
def test_more_random_functions(kind: str, mode: str) -> None:
    assert wrong(run("random", mode, kind, "100", "104", "2x2x4")) == {}


@pytest.mark.parametrize("mode", kept(MODES, "cheapest"))
def test_other_models_and_loops(mode: str) -> None:
    assert wrong(run("more", mode)) == {}


def test_planted_faults_are_found() -> None:
    """By JAX's check of what varies over devices, by values, by bytes."""
    assert run("faults") == {
        "a dropped sum": "jax values bytes",
        "a sum too many": "values bytes",
        "a gather along the wrong axis": "values bytes",
        "a gather of the wrong dimension": "values",
        "a scatter of the wrong dimension": "values",
        "a sum after what is not linear": "jax values",
    }


@pytest.mark.parametrize("mode", sampled(MODES, "cheapest"))
def test_the_bytes_reported_are_those_of_the_hlo(mode: str) -> None:
    assert wrong(run("bytes", mode, "mlp_step:fsdp+tp", "mlp:dp+tp+sp")) == {}


@pytest.mark.parametrize("mode", kept(MODES, "cheapest"))
def test_layers_that_are_functions_have_one_devices_values(mode: str) -> None:
    assert wrong(run("layers", mode, "4", "fsdp+tp")) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_layers_in_every_strategy(mode: str) -> None:
    assert wrong(run("layers", mode, "3", "dp", "fsdp", "tp")) == {}
