"""What `sw.reshard` says of what it cannot take, and what it keeps in its cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from places import ROOT

import shardwright as sw
from shardwright.codegen.call import cache
from shardwright.codegen.operations.emit.reshard import Bundle

pytest.importorskip("jax")

JAX = """
import json
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import shardwright as sw
mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
explicit = jax.make_mesh((4,), ("z",), axis_types=(jax.sharding.AxisType.Explicit,))
target = NamedSharding(mesh, P("y", "x"))
x = jax.device_put(jnp.ones((4, 4)), NamedSharding(mesh, P("x", "y")))
z = jax.device_put(jnp.ones((4, 4)), NamedSharding(explicit, P("z")))
x_sharding = x.sharding
turned = NamedSharding(jax.sharding.Mesh(mesh.devices[::-1, ::-1], ("x", "y")), P("y", "x"))
said = {}
"""

ONE = """
try:
    {call}
except sw.InputError as error:
    said[{name!r}] = str(error)
"""

MISTAKES = {
    "no array": (
        "sw.reshard([1, 2], target)",
        """\
        x: `x` must be a jax.Array or a DTensor
        got: [1, 2]
        expected: a jax.Array: jax.device_put(x, sharding)
        """,
    ),
    "a spec without a mesh": (
        "sw.reshard(jnp.ones((4, 4)), P('y', 'x'))",
        """\
        target: a PartitionSpec needs an array with a mesh, and this array has none
        got: P('y', 'x')
        expected: NamedSharding(mesh, P(…)), or jax.set_mesh(mesh) outside jit
        """,
    ),
    "a target that is none": (
        "sw.reshard(x, 'y')",
        """\
        target: the target of a jax.Array must be a JAX sharding
        got: 'y'
        expected: NamedSharding(mesh, P(…))
        """,
    ),
    "another order of devices in a jit": (
        "jax.jit(lambda x: sw.reshard(x, turned, source=x_sharding))(x)",
        """\
        target: all arrays of one jit must be on the same devices, in the same order
        got: devices [3, 2, 1, 0]
        expected: devices [0, 1, 2, 3], or sw.reshard outside jit
        """,
    ),
    "terms on another mesh": (
        "sw.reshard(x, NamedSharding(explicit, P(unreduced={'z'})))",
        """\
        target: unreduced and reduced axes can be resharded only within one mesh
        got: P(unreduced={'z'}) on a mesh other than the array's
        expected: a NamedSharding on the mesh of the array
        """,
    ),
    "Auto axes in a jit": (
        "jax.jit(lambda x: sw.reshard(x, target))(x)",
        """\
        source: under jit, `source` must be given unless all axes of the mesh are Explicit
        got: float32[4,4]
        expected: sw.reshard(x, target, source=P(…)), or a mesh with Explicit axes
        """,
    ),
    "another mesh in a jit": (
        "jax.jit(lambda z: sw.reshard(z, target))(z)",
        """\
        target: inside jit the target must be on the mesh of the array
        got: Auto axes x=2, y=2
        expected: Explicit axes z=4
        """,
    ),
    "inside shard_map": (
        "jax.jit(jax.shard_map(lambda x: sw.reshard(x, target), mesh=mesh,"
        " in_specs=P('x'), out_specs=P('x')))(x)",
        """\
        x: sw.reshard must not be called inside shard_map, where arrays are local shards
        got: float32[2,4]{V:x}
        expected: sw.reshard(x, target) before or after the shard_map
        """,
    ),
    "another source": (
        "sw.reshard(x, target, source=P('x'))",
        """\
        source: `source` is not the array's sharding
        got: P('x',)
        expected: P('x', 'y'), or no source
        """,
    ),
    "a target of another rank": (
        "sw.reshard(jnp.ones(4), target)",
        """\
        target: a sharding must not be longer than the rank of the array
        got: P('y', 'x')
        expected: a length of at most 1
        """,
    ),
    "a source of another rank": (
        "sw.reshard(x, target, source=P('x', None, 'y'))",
        """\
        source: a sharding must not be longer than the rank of the array
        got: P('x', None, 'y')
        expected: a length of at most 2
        """,
    ),
    "a source that is none": (
        "jax.jit(lambda x: sw.reshard(x, target, source='x'))(x)",
        """\
        source: the source of a jax.Array must be a NamedSharding or a PartitionSpec
        got: 'x'
        expected: P(…)
        """,
    ),
    "no devices": (
        "sw.reshard(x, NamedSharding(mesh.abstract_mesh, P('y')))",
        """\
        target: the target mesh must have devices
        got: an abstract mesh of Auto axes x=2, y=2
        expected: NamedSharding(mesh, P(…)) on a mesh of devices
        """,
    ),
    "a cache that is a file": (
        "open('taken', 'w').close(); os.environ['SHARDWRIGHT_CACHE'] = 'taken';"
        " jax.jit(lambda x: sw.reshard(x, target, source=P('x', 'y')))(x)",
        """\
        SHARDWRIGHT_CACHE: the cache folder for emitted modules cannot be written: File exists
        got: {folder}/taken
        expected: a folder that can be created and written
        """,
    ),
}


def test_mistakes(tmp_path: Path) -> None:
    """Each message says what was given, which rule it breaks and what to give."""
    calls = [ONE.format(name=name, call=call) for name, (call, _) in MISTAKES.items()]
    done = subprocess.run(
        [sys.executable, "-c", "".join([JAX, *calls, "print(json.dumps(said))"])],
        env={**os.environ, "SHARDWRIGHT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.replace(str(tmp_path), "{folder}"))
    assert said == {
        name: textwrap.dedent(message).removesuffix("\n") for name, (_, message) in MISTAKES.items()
    }


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """One of plain JAX, and a cache of its own."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    mesh = sw.Mesh({"x": 2, "y": 3})
    reshard = sw.Reshard((6, 6), "float32", "P('x', 'y')", "P('y', 'x')", mesh=mesh)
    return sw.emit(reshard, backends=("jax_xla",))


def test_it_is_emitted_once(bundle: Bundle) -> None:
    """What is there is not written again, and what is damaged is."""
    module = cache.load(bundle, "jax_xla")
    assert module.SHAPE == (6, 6)
    path = cache.root_of(bundle) / cache.NAME / "jax_xla.py"
    text, before = path.read_text(), path.stat().st_mtime_ns
    assert cache.load(bundle, "jax_xla") is module
    assert path.stat().st_mtime_ns == before
    path.write_text(text.replace("SHAPE", "SHARP"))
    cache.load(bundle, "jax_xla")
    assert path.read_text() == text


def test_a_damaged_manifest_is_written_again(bundle: Bundle) -> None:
    """One cut short, as by a full disk."""
    module = cache.load(bundle, "jax_xla")
    manifest = cache.root_of(bundle) / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text[: len(text) // 2])
    assert cache.load(bundle, "jax_xla") is module
    assert manifest.read_text() == text


def test_a_filled_cache_is_only_read(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is mounted read-only: no lock is made, and nothing written."""
    module = cache.load(bundle, "jax_xla")

    def refused(*_: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache.os, "open", refused)
    assert cache.load(bundle, "jax_xla") is module
    (cache.root_of(bundle) / "manifest.json").unlink()
    with pytest.raises(sw.InputError, match="cannot be written: Read-only file system"):
        cache.load(bundle, "jax_xla")


def test_another_version_has_other_folders(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a module is never that of older templates."""
    before = cache.root_of(bundle)
    monkeypatch.setattr(cache, "emitter", lambda: "another")
    assert cache.root_of(bundle) != before


def test_the_folder_is_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variable, else the user's caches."""
    monkeypatch.setenv(cache.VARIABLE, "~/there")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "there"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.folder() == tmp_path / ".cache" / "shardwright"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache.folder() == tmp_path / "caches" / "shardwright"
