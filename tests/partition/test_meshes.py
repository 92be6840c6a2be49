"""Programs on several meshes of the same devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.propagate.propagation import propagate
from shardwright.codegen.show.program import show_program
from shardwright.ir.errors import InternalError
from shardwright.ir.program_check import well_formed
from shardwright.ir.program_parse import parse_program
from shardwright.ir.program_text import format_program

MESH = sw.Mesh({"d": 4, "t": 2})
FLAT = sw.Mesh({"d": 8}, name="flat")  # the same devices; `d` is another axis
FEW = sw.Mesh({"u": 2})


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def crossing(x: Any, w: Any) -> Any:
    h = jnp.sin(x)
    h = sw.constrain(h, '[{"d", ?}, {?}]', FLAT)
    return jnp.tanh(h) + w


def partitioned() -> sw.Partitioned:
    given = ('[{"t", ?}, {"d", ?}]', None)
    return sw.partition(crossing, shaped(16, 8), shaped(16, 8), mesh=MESH, in_shardings=given)


def test_axes_stay_on_their_mesh() -> None:
    """A constraint on another mesh ends what comes from the one, and begins the other."""
    program = partitioned()
    well_formed(program.program)
    assert program.program.meshes == (MESH, FLAT)
    x, w = program.in_shardings
    assert (x.mesh, str(x)) == (MESH, '[{"t", ?}, {"d", ?}]')
    assert str(program.program.value("h").sharding) == '[{"t", ?}, {"d", ?}]'
    assert (w.mesh, str(w)) == (FLAT, '[{"d", ?}, {?}]')
    assert (program.out_shardings.mesh, str(program.out_shardings)) == (FLAT, '[{"d", ?}, {?}]')
    assert [change.axes for change in program.why("out")] == ['"d"'] * 2
    assert format_program(parse_program(str(program))) == str(program)


def test_what_is_on_another_mesh_is_shown_so() -> None:
    shown = show_program(partitioned().program)
    assert shown.startswith(
        'mesh @mesh = <["d"=4, "t"=2]>\nmesh @flat = <["d"=8]>\ncrossing:\n'
        "    x: f32[16@t,8@d]\n    w: f32[16@d,8] on @flat\n"
    )
    assert "    h_2: f32[16@d,8] on @flat = constrain(h)\n" in shown
    assert shown.endswith("    return out: f32[16@d,8] on @flat\n")


def test_a_mesh_that_jax_knows_the_axes_of_is_the_one_of_the_program() -> None:
    """An abstract mesh does not say its devices; those of the program's mesh have an order."""
    turned = sw.Mesh({"d": 4, "t": 2}, range(7, -1, -1))
    spec = NamedSharding(AbstractMesh((4, 2), ("d", "t")), PartitionSpec("d"))
    program = sw.partition(jnp.sin, shaped(8), mesh=turned, in_shardings=spec)
    assert program.program.meshes == (turned,)
    assert program.out_shardings.mesh == turned


def test_other_devices_are_refused() -> None:
    def constrained(x: Any) -> Any:
        return sw.constrain(x, '[{"u"}]', FEW)

    rule = "all meshes of a program must have the same devices"
    got = 'got: <["u"=2]> of 2 devices\nexpected: the devices of <["d"=4, "t"=2]> of 8 devices'
    given = FEW.sharding('[{"u"}]')
    said = message(lambda: sw.partition(jnp.sin, shaped(8), mesh=MESH, in_shardings=given))
    assert said == f"in_shardings[0]: {rule}\n{got}"
    said = message(lambda: sw.partition(constrained, shaped(8), mesh=MESH))
    head, *rest = said.splitlines()
    assert head.startswith("constrain, ")
    assert head.endswith(f": {rule}")
    assert "test_meshes.py" in head
    assert "\n".join(rest) == got


def test_other_devices_in_a_text_are_refused() -> None:
    text = """\
        @mesh = <["d"=4]>
        @other = <["u"=2]>
        program p(%x: f32[8]) -> (_) {
          return %x
        }
    """
    assert message(lambda: parse_program(exactly(text))) == exactly(
        """
        all meshes of a program must have the same devices
          @other = <["u"=2]>
          ^^^^^^^^^^^^^^^^^^
        got: @other = <["u"=2]>
        """
    )
    program = partitioned().given
    planted = type(program)(program.name, (MESH, FEW), (), program.body, ())
    with pytest.raises(InternalError, match="not well formed"):
        well_formed(planted)


def test_a_constraint_in_a_manual_computation_is_on_its_mesh() -> None:
    spec = PartitionSpec("d", None)
    inner = jax.shard_map(
        lambda x: sw.constrain(x, '[{?}, {"d"}]', FLAT),
        mesh=AbstractMesh((4, 2), ("d", "t")),
        in_specs=spec,
        out_specs=spec,
        axis_names={"d"},
    )
    said = message(lambda: sw.partition(inner, shaped(8, 16), mesh=MESH))
    assert said.startswith("constrain, ")
    assert said.endswith(
        ": a constraint in a shard_map must be on the mesh of the shard_map\n"
        'got: [{?}, {"d"}] on <["d"=8]>\nexpected: a sharding on <["d"=4, "t"=2]>'
    )


def test_a_manual_computation_on_another_mesh() -> None:
    """What is outside on the first mesh does not go in; inside, its own axes are free."""
    spec = PartitionSpec("u", None)
    mesh = AbstractMesh((4, 2), ("u", "v"))
    inner = jax.shard_map(jnp.tanh, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"u"})
    given = '[{?}, {"t", ?}]'
    program = sw.partition(
        lambda x: inner(jnp.sin(x)) * 2.0, shaped(8, 16), mesh=MESH, in_shardings=given
    )
    well_formed(program.program)
    other = sw.Mesh({"u": 4, "v": 2})
    found = {name: program.program.value(name).sharding for name in ("sin", "tanh", "out")}
    assert {name: (s.mesh, str(s)) for name, s in found.items() if s} == {
        "sin": (MESH, '[{?}, {"t", ?}]'),
        "tanh": (other, "[{?}, {?}]"),
        "out": (other, '[{"u", ?}, {?}]'),
    }
    assert format_program(parse_program(str(program))) == str(program)
    assert str(propagate(program.given).program.results[0]) == '[{"u", ?}, {?}]'
