"""What a remedy does in all, by partitioning again."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw
from shardwright.codegen.show.program_review import program_text, remedies_text

MESH = sw.Mesh({"d": 4})


def step(p: Any, x: Any) -> Any:
    """A gradient of weights that are split as the batch is, without the keys of the weights."""
    return jax.grad(lambda p: (jnp.tanh(x @ p["w"]) ** 2).mean())(p)["w"]


def program() -> sw.Partitioned:
    w = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    x = jax.ShapeDtypeStruct((256, 32), jnp.float32)
    weights = {"w": '[{"d"}, {}]'}
    sides: Any = {"in_shardings": (weights, '[{"d"}, {}]'), "out_shardings": weights["w"]}
    return sw.partition(step, {"w": w}, x, mesh=MESH, mode="cheapest", **sides)


def test_a_gather_that_is_removed() -> None:
    made = program()
    (gather, *_) = made.communications
    assert (gather.op, gather.value) == ("all_gather", "p_w")
    after = made.with_remedy(gather.number)
    assert str(after.in_shardings[0]["w"]) == "[{}, {}]"
    assert str(after.in_shardings[1]) == str(made.in_shardings[1])
    assert [each.op for each in after.communications] == ["reduce_scatter"]
    assert made.bytes_received - after.bytes_received == gather.bytes == 3 * 8 * 32 * 4


def test_the_text_of_all_remedies() -> None:
    made = program()
    assert remedies_text(made) == (
        "total bytes with the best remedy:\n"
        "    C1: 3 KiB, 3 KiB less with p['w'] as [{}, {}]\n"
        "    C2: nothing: each device receives its own part of the sum alone\n"
    )
    assert remedies_text(made.with_remedy(1)) == (
        "total bytes with the best remedy:\n"
        "    C1: nothing: each device receives its own part of the sum alone\n"
    )


TWINS = {"w": (8, 32), "b": (32,), "out": (32, 8)}


def trained(params: Any, state: Any, x: Any) -> Any:
    """A step of training that returns the weights and the state of the optimizer."""

    def loss(p: Any) -> Any:
        return ((jnp.tanh(x @ p["w"] + p["b"]) @ p["out"]) ** 2).mean()

    grads = jax.grad(loss)(params)
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state


def training(**changed: str) -> sw.Partitioned:
    """The step of training, with other shardings of some weights and all their twins."""
    params = {key: jax.ShapeDtypeStruct(shape, jnp.float32) for key, shape in TWINS.items()}
    own = {"w": '[{"d"}, {"t"}]', "b": '[{"t"}]', "out": '[{"t"}, {"d"}]', **changed}
    sides: Any = {"in_shardings": (own, own, '[{"d"}, {}]'), "out_shardings": (own, own)}
    x = jax.ShapeDtypeStruct((64, 8), jnp.float32)
    mesh = sw.Mesh({"d": 2, "t": 2})
    return sw.partition(trained, params, params, x, mesh=mesh, mode="cheapest", **sides)


@pytest.mark.parametrize(
    ("value", "key", "sharding"),
    [("params_w", "w", '[{}, {"t"}]'), ("d_params_b", "b", '[{"t", "d"}]')],
)
def test_the_twins_of_an_argument_are_resharded_too(value: str, key: str, sharding: str) -> None:
    """Also if its gradient moves: the total is that of a user who does as the remedy says."""
    made = training()
    (row,) = (each for each in made.communications if value in each.value.split(", "))
    wanted = f"params['{key}'] as {sharding} (and the same in state and the results)"
    assert row.remedy.startswith(f"shard the argument {wanted}")
    after = dict(made.remedies(row.number))[wanted]
    by_hand = training(**{key: sharding})
    assert after.bytes_received == by_hand.bytes_received
    for side in ("in_shardings", "out_shardings"):
        assert str(getattr(after, side)) == str(getattr(by_hand, side))
    assert f"C{row.number}: nothing: as much with {wanted}\n" in remedies_text(made)


def test_a_gradient_is_called_after_its_argument() -> None:
    """Also one that is computed again."""
    made = training()
    (row,) = (each for each in made.communications if each.op == "all_reduce" and "d" in each.axes)
    said = [said.partition(" as ")[0] for said, _ in made.remedies(row.number)]
    assert {*said} == {"params['b']", "the gradient of params['b']"}
    for text in (program_text(made), made.to_json(), remedies_text(made)):
        assert "_again" not in text


def a_sum(mode: str = "cheapest", result: str = "[{}, {}]", of: Any = None) -> sw.Partitioned:
    """A product whose terms lie on all devices."""
    x, w = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 64), (64, 32)))
    given: Any = {"in_shardings": ('[{}, {"d"}]', '[{"d"}, {}]'), "out_shardings": result}
    return sw.partition(of or (lambda x, w: x @ w), x, w, mesh=MESH, mode=mode, **given)


def test_a_result_is_taken_in_parts() -> None:
    """Instead of as a whole; what it is otherwise laid out as does not matter."""
    made = a_sum()
    (summed,) = made.communications
    assert summed.op == "all_reduce"
    after = made.with_remedy(1)
    assert [each.op for each in after.communications] == ["reduce_scatter"]
    assert str(after.out_shardings) == '[{"d"}, {}]'
    assert made.bytes_received == 2 * after.bytes_received == 2 * summed.saving
    assert 'C1: 3 KiB, 3 KiB less with result as [{"d"}, {}]\n' in remedies_text(made)


def test_a_result_is_taken_as_it_comes() -> None:
    """Where it would be gathered."""
    x = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    sides: Any = {"in_shardings": ('[{"d"}, {}]',), "out_shardings": "[{}, {}]"}
    made = sw.partition(jnp.tanh, x, mesh=MESH, mode="cheapest", **sides)
    assert [each.value for each in made.communications] == ["tanh"]
    said, after = made.remedies(1)[0]
    assert said == 'result as [{"d"}, {}]'
    assert after.communications == ()


@pytest.mark.parametrize("mode", ["cheapest", "as_shardy"])
def test_a_constraint_asks_for_parts(mode: str) -> None:
    def step(x: Any, w: Any) -> Any:
        h = sw.constrain(x @ w, "[{}, {}]")
        return jnp.tanh(h).sum(), h.T

    def loop(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(step(x, w)[1].T @ w.T), x)

    made = a_sum(mode, None, step)
    (said, after), *_ = made.remedies(1)
    assert said.startswith("the constraint of `x @ w` as [")
    assert after.bytes_received < made.bytes_received
    inside = a_sum(mode, None, loop)
    assert inside.remedies(1)
    assert inside.bytes_received >= inside.with_remedy(1).bytes_received


def test_a_value_is_asked_for_in_parts() -> None:
    """Where propagation alone leaves it whole, though it is used in parts."""

    def step(x: Any, w: Any) -> Any:
        h = x @ w
        return jnp.exp(h) * h, jnp.sin(h)

    made = a_sum("as_shardy", None, step)
    (said, after), *_ = made.remedies(1)
    assert said == 'h as [{"d"}, {}]'
    assert [each.op for each in after.communications] == ["reduce_scatter"]


def test_numbers_are_those_of_the_communications() -> None:
    """Also behind what is in an op and brings the busiest device nothing more."""
    x = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    sides: Any = {"in_shardings": ('[{"d"}, {}]',), "out_shardings": "[{}, {}]"}

    def step(x: Any) -> Any:
        y = jnp.roll(x, 1, 0)
        return y * jnp.roll(y, 8, 0)

    made = sw.partition(step, x, mesh=MESH, mode="as_shardy", **sides)
    for each in made.communications:
        name = "`y * jnp.roll(y, 8, 0)`" if each.value == "out" else each.value
        for said, _ in made.remedies(each.number):
            assert said.startswith((f"{name} as ", "result as "))


def test_in_functions_every_layer_is_left_whole() -> None:
    def layers(ps: Any, x: Any) -> Any:
        for p in ps:
            h = jnp.tanh(x @ p) + jnp.sin(x) * jnp.cos(x) - jnp.exp(-x) * jnp.sin(2 * x)
            x = jnp.tanh(h) * 0.5 + jnp.cos(h) * 0.25 + x - jnp.sin(h) * jnp.exp(-h * h)
        return x

    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 32), (256, 32)))
    given = ('[{"d"}, {}]', '[{"d"}, {}]')
    made = sw.partition(layers, [w] * 6, x, mesh=MESH, mode="cheapest", in_shardings=given)
    assert made.local.functions
    gathers = [each for each in made.communications if each.op == "all_gather"]
    assert sum(each.times for each in gathers) == 6
    after = made.with_remedy(gathers[0].number)
    whole = [str(each) for each in after.in_shardings[0]]
    assert whole.count("[{}, {}]") == gathers[0].times
    assert made.bytes_received - after.bytes_received == gathers[0].bytes


def test_other_communications_have_none() -> None:
    made = program()
    (other,) = (each for each in made.communications if each.op != "all_gather")
    assert (other.remedy[:7], other.saving) == ("nothing", 0)
    with pytest.raises(sw.InputError, match="there is no remedy for this communication"):
        made.with_remedy(other.number)
    with pytest.raises(sw.InputError, match="1 to 2"):
        made.with_remedy(3)
    with pytest.raises(sw.InputError, match="the number of a communication"):
        made.with_remedy("C1")  # type: ignore[arg-type]


def test_what_cannot_be_split_has_none() -> None:
    x = jax.ShapeDtypeStruct((4096, 3), jnp.float32)
    sides: Any = {"in_shardings": ('[{"d"}, {}]',), "out_shardings": "[{}]"}
    made = sw.partition(lambda x: x.sum(0), x, mesh=MESH, mode="cheapest", **sides)
    (each,) = made.communications
    said = 'nothing: no dimension of out can be split over "d" as well'
    assert (each.remedy, each.saving) == (said, 0)
    assert remedies_text(made).endswith(f"C1: {said}\n")
    greatest = sw.partition(lambda x: x.max(0), x, mesh=MESH, mode="cheapest", **sides)
    (each,) = greatest.communications
    assert each.remedy == "nothing: a maximum is made on every device"
    alone = sw.partition(lambda x: x * 2, x, mesh=MESH, in_shardings=sides["in_shardings"])
    assert remedies_text(alone) == "no device receives anything\n"


def test_remedies_are_changes_that_a_user_can_make() -> None:
    """At an argument, a result, a line or a named scope; nothing inside a backward pass."""

    def loss(w: Any, x: Any) -> Any:
        with jax.named_scope("block"):
            with jax.named_scope("rows"):
                h = jnp.tanh(x @ w)
            k = jnp.cumsum(h[::-1], 0)
            y = jnp.sort(k * jnp.exp(-k), 0)
        return (y * y).sum()

    x, w = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 16), (16, 64)))
    given = ('[{"d"}, {}]', '[{"d"}, {}]')
    graded = jax.value_and_grad(loss)
    made = sw.partition(graded, w, x, mesh=MESH, mode="as_shardy", in_shardings=given)
    remedies = [each.remedy for each in made.communications]
    held = "; each device then holds 4 KiB instead of 1 KiB of it"
    assert remedies[0] == f"shard the argument w as [{{}}, {{}}]{held}"
    assert re.fullmatch(r"constrain h to \[{}, {}\] at .*:\d+, in loss", remedies[1])
    (gradient,) = (each for each in made.communications if each.value == "d_y")
    assert re.fullmatch(
        r"constrain y to \[{}, {}\] at .*:\d+, in loss, which also constrains its "
        "gradient",
        gradient.remedy,
    )
    assert remedies[-1] == 'return result[1] split over "d": a reduce-scatter takes half'
    for each, said in zip(made.communications, remedies, strict=True):
        assert bool(each.saving) is not said.startswith("nothing")
        assert f" {each.value} to" not in said or not each.value.startswith("d_")


def test_a_gather_that_would_only_move_has_no_remedy() -> None:
    """The operands of a value may be as large as the value; those of a product may be smaller."""

    def steps(x: Any, w: Any, b: Any) -> Any:
        h = jnp.exp(x) * 2
        return jnp.sort(h, 0), jnp.sort(x[:, :4] @ w, 0), jnp.sort(b[:, None], 0)

    x, w, b = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 32), (4, 32), (64,)))
    given = ('[{"d"}, {}]', "[{}, {}]", '[{"d"}]')
    made = sw.partition(steps, x, w, b, mesh=MESH, mode="as_shardy", in_shardings=given)
    only_moved, smaller, argument = (e for e in made.communications if e.op == "all_gather")
    reason = 'nothing: it is computed from values split over "d", which are no smaller'
    assert only_moved.remedy == reason
    assert only_moved.saving == 0
    assert min(after.bytes_received for _, after in made.remedies(1)) >= made.bytes_received
    assert smaller.remedy.startswith("constrain `x[:, :4] @ w` to [{}, {}] at ")
    assert smaller.saving == smaller.bytes - 3 * 16 * 4 * 4
    assert argument.remedy.startswith("shard the argument b as [{}]; each device then holds 256 B")


def test_the_value_of_a_gradient_is_named() -> None:
    """Also where two values of one line have gradients of one shape."""

    def loss(x: Any) -> Any:
        h, k = jnp.sort(jnp.cos(x), 0), jnp.sort(jnp.sin(x), 0)
        return jnp.sum(jnp.sin(h) * jnp.cos(k))

    x = jax.ShapeDtypeStruct((32, 16), jnp.float32)
    graded = jax.value_and_grad(loss)
    made = sw.partition(graded, x, mesh=MESH, mode="as_shardy", in_shardings=('[{"d"}, {}]',))
    found = {each.value: each.remedy for each in made.communications}
    for name in ("h", "k"):
        assert found[f"d_{name}"].startswith(f"constrain {name} to ")
        assert "which also constrains its gradient" in found[f"d_{name}"]


def test_results_of_layers_are_returned_as_they_come() -> None:
    def layers(ps: Any) -> Any:
        h = [jnp.tanh(p) * 0.5 + jnp.cos(p) * 0.25 - jnp.sin(p) * jnp.exp(-p * p) for p in ps]
        return [each * jnp.exp(-each) + jnp.sin(each) for each in h]

    p = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    sides: Any = {"in_shardings": (['[{"d"}, {}]'] * 4,), "out_shardings": "[{}, {}]"}
    made = sw.partition(layers, [p] * 4, mesh=MESH, mode="cheapest", **sides)
    (gather,) = made.communications
    assert (made.local.functions != (), gather.times) == (True, 4)
    assert gather.remedy == 'return result[0] and 3 like it as [{"d"}, {}]'


def test_a_result_that_is_fed_back() -> None:
    """The remedy names the argument of the same type and keys, the reason the op that adds up, and
    the repr of a program with a remedy its bytes."""

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: ((x @ p["w1"]) ** 2).mean())(params)
        total = x.sum(0)
        return jax.tree.map(lambda w, g: -0.1 * g, params, grads), total

    params = {"w1": jax.ShapeDtypeStruct((16, 8), jnp.float32)}
    x = jax.ShapeDtypeStruct((32, 16), jnp.float32)
    made = sw.partition(
        step, params, x, mesh=sw.Mesh({"d": 4}), mode="cheapest", in_shardings=(None, '[{"d"}, {}]')
    )
    first, second = made.communications
    assert first.reason.startswith("result[0]['w1'] must be [{}, {}]: dot_general sums over dim")
    assert second.reason.startswith("reduce_sum sums over dimension 0 of x") or (
        second.reason
        == "result[1] must be [{}]: reduce_sum sums over dimension 0 of x, split over "
        '"d"'
    )
    assert first.remedy == (
        "return result[0]['w1'] as [{\"d\"}, {}] (and the argument params['w1'] alike, if this "
        "result is its next value): a reduce-scatter takes half"
    )
    assert "argument" not in second.remedy
    assert repr(made).endswith("mode='cheapest', receives 864 B>")
    (_, best), *_ = made.remedies(1)
    assert repr(best).endswith("receives 480 B>")


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_a_remedy_names_what_the_user_can_change(mode: str) -> None:
    """An argument by its path, a variable at its line with the number of layers, but no part of an
    expression and nothing within a library's."""

    def loss(params: Any, x: Any) -> Any:
        for layer in params["layers"]:
            h = jnp.tanh((x - x.mean(-1, keepdims=True)) @ layer["w1"])
            h = jnp.exp(-h * h) * jnp.sin(h) + jnp.cos(h) * jax.nn.softmax(h)
            y = h @ layer["w2"]
            x = x + y + jnp.sin(y) * 0.5
        return (jax.nn.log_softmax(x) ** 2).mean()

    layer = {"w1": (32, 64), "w2": (64, 32)}
    shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in layer.items()}
    params = {"layers": [shapes] * 4}
    split = {"layers": [{"w1": '[{}, {"t"}]', "w2": '[{"t"}, {}]'}] * 4}
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32)
    given = split, '[{"d"}, {"t"}]'
    mesh = sw.Mesh({"d": 4, "t": 2})
    graded = jax.value_and_grad(loss)
    made = sw.partition(graded, params, x, mesh=mesh, mode=mode, in_shardings=given)
    assert made.communications
    for each in made.communications:
        words = each.remedy.split()
        if words[0] == "constrain":
            assert words[1] in ("h", "y", "x", "`x.mean(-1,"), each.remedy
            assert each.times == 1 or f"for each of {each.times} layers" in each.remedy
        elif words[0] == "shard":
            assert eval(words[3], {"params": params, "x": x}).shape, each.remedy
        else:
            assert words[0] in ("return", "nothing:", "nothing"), each.remedy
            assert bool(each.saving) is (words[0] == "return")


def test_work_that_devices_repeat_after_a_gather_has_a_remedy() -> None:
    """Rows are looked up in a table whose columns have the axis of the rows, which Shardy then
    gathers: every device computes with all of them."""

    def loss(table: Any, w: Any, at: Any) -> Any:
        x = table[at] * 2.0
        for _ in range(3):
            x = jax.nn.softmax((x @ w) @ (x @ w).T) @ x
        return x.sum()

    f32, i32 = jnp.float32, jnp.int32
    avals = [jax.ShapeDtypeStruct(*each) for each in (((64, 32), f32), ((32, 32), f32))]
    mesh, rows = sw.Mesh({"d": 4}), jax.ShapeDtypeStruct((16,), i32)
    given: Any = ('[{}, {"d"}]', "[{}, {}]", '[{"d"}]')
    made = sw.partition(loss, *avals, rows, mesh=mesh, mode="as_shardy", in_shardings=given)
    first = made.communications[0]
    assert re.search(
        r'; the devices along "d" then repeat \d\d % of the computation$', first.reason
    )
    shared = re.search(r"; to share the repeated work, (constrain .*)$", first.remedy)
    assert shared
    assert shared[1].startswith('constrain `table[at]` to [{"d"}, {}] at ')
    assert first.repeated in first.reason
    _, best = next(each for each in made.remedies(1) if each[0] == '`table[at]` as [{"d"}, {}]')
    assert best.computed < 0.5 * made.computed
