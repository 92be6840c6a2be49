"""The config: defaults, named meshes, includes, groups, and mistakes, each shown in its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import exactly

from shardwright.codegen.spec.config import Config, find_config, read_config
from shardwright.codegen.spec.description import Description, describe
from shardwright.ir.errors import InputError

CONFIG = """\
out = "made"
[defaults]
dtype = "bfloat16"
backends = ["triton_gpu"]
[mesh]
trainer = "fsdp=4,tp=2"   # the first eight
server = '<["tp"=4], device_ids=[8, 9, 10, 11]>'

[[reshard]]
name = "wq"
mesh = "trainer"
target_mesh = "server"
shape = [64, 64]
source = '[{"fsdp", "tp"}, {}]'
target = '[{}, {"tp"}]'
gradient = true
"""
GROUP = """\
[[group]]
name = "weights"
mesh = "trainer"
target_mesh = "server"
source = '[{"fsdp", "tp"}, {}]'
target = '[{}, {"tp"}]'
tensors = [
  {name = "layer0.wq", shape = [64, 64]},  # of the first layer
  {name = "layer0.norm", shape = [64], source = '[{"fsdp"}]', target = '[{}]'},
]
"""
WQ = describe(
    {
        "name": "wq",
        "mesh": "fsdp=4,tp=2",
        "target_mesh": '<["tp"=4], device_ids=[8, 9, 10, 11]>',
        "shape": "64x64",
        "dtype": "bfloat16",
        "source": '[{"fsdp", "tp"}, {}]',
        "target": '[{}, {"tp"}]',
        "backends": "triton_gpu",
        "gradient": True,
    }
)


def read(folder: Path, text: str, **others: str) -> Config:
    for name, content in {"shardwright": text, **others}.items():
        (folder / f"{name}.toml").write_text(content)
    return read_config(folder / "shardwright.toml")


def problem(folder: Path, text: str, **others: str) -> str:
    """What is said of a config, without the folder it is in."""
    with pytest.raises(InputError) as caught:
        read(folder, text, **others)
    return str(caught.value).replace(f"{folder}/", "")


def by_name(config: Config) -> dict[str, Description]:
    return {each.name: each for each in config.reshards}


def test_defaults_and_named_meshes(tmp_path: Path) -> None:
    config = read(tmp_path, CONFIG)
    assert config.reshards == (WQ,)
    assert config.out == tmp_path / "made"
    assert config.path == tmp_path / "shardwright.toml"


def test_a_table_says_more_than_the_defaults(tmp_path: Path) -> None:
    (found,) = read(tmp_path, CONFIG + 'dtype = "int8"\n').reshards
    assert (found.dtype, found.backends) == ("int8", ("triton_gpu",))


OTHERS = """
[mesh]
devices = "x=2"
[defaults]
mesh = "devices"
dtype = "float32"
backends = ["pallas_tpu", "jax_xla"]
[[relayout]]
name = "parts"
tensors = {w = [4, 4]}
source = "w[{x}]"
target = "w[{}, {x}]"
[[model]]
name = "served"
tensors = {w = [4, 4]}
source = "_[{x}]"
target = "_[{}, {x}]"
[[matmul]]
name = "up"
lhs = {shape = [4, 4], sharding = '[{"x"}, {}]'}
rhs = {shape = [4, 4], sharding = '[{}, {}]'}
out = '[{"x"}, {}]'
"""


@pytest.mark.parametrize(
    ("given", "relayout", "model"),
    [
        ('["pallas_tpu", "jax_xla"]', ("pallas_tpu", "jax_xla"), ("jax_xla",)),
        ('["pallas_tpu"]', ("pallas_tpu",), ("triton_gpu", "jax_xla")),
    ],
)
def test_default_backends_are_for_what_they_can_emit(
    given: str, relayout: tuple[str, ...], model: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "shardwright.toml"
    path.write_text(OTHERS.replace('["pallas_tpu", "jax_xla"]', given))
    config = read_config(path)
    assert config.relayouts[0].backends == relayout
    assert config.models[0].backends == model
    assert config.matmuls[0].backends == ("jax_xla",)
    path.write_text(OTHERS.replace('["pallas_tpu", "jax_xla"]', '["jax_xl"]'))
    with pytest.raises(InputError, match="the backend cannot emit models"):
        read_config(path)


def test_a_topology_stands_beside_its_file(tmp_path: Path) -> None:
    chip = 'topology = "switch:16"\nlatency = 2e-6\n'
    text = CONFIG.replace("[defaults]", '[defaults]\ntopology = "chip.toml"')
    (found,) = read(tmp_path, text, chip=chip).reshards
    assert found.topology == "switch:16,bandwidth=4.5e+11,latency=2e-06"


def test_a_config_is_found_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    inner = tmp_path / "src" / "model"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    found = find_config()
    assert found == Path("../../shardwright.toml")
    assert read_config(found).out == Path("../../made")
    monkeypatch.chdir(tmp_path)
    assert find_config() == Path("shardwright.toml")
    assert read_config("shardwright.toml").out == Path("made")


# Tables in a file of its own, whose meshes and defaults are those of the file that includes it.
LAYER = """\
[[reshard]]
name = "wk"
mesh = "trainer"
shape = [32, 64]
source = '[{"fsdp"}, {}]'
target = '[{}, {"tp"}]'
"""


def test_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers/norms.toml").write_text(
        LAYER.replace("wk", "norm").replace("[32, 64]", "[8, 8]")
    )
    layer = 'include = ["layers/norms.toml"]\n[defaults]\ndtype = "int8"\n' + LAYER
    config = read(tmp_path, 'include = ["layer.toml"]\n' + CONFIG, layer=layer)
    assert [each.name for each in config.reshards] == ["norm", "wk", "wq"]
    found = by_name(config)
    assert [found[name].dtype for name in ("norm", "wk", "wq")] == ["int8", "int8", "bfloat16"]
    assert found["wk"].backends == ("triton_gpu",)
    assert found["wk"].mesh == WQ.mesh
    assert found["wq"] == WQ


def test_a_mesh_of_an_included_file(tmp_path: Path) -> None:
    head, meshes, rest = (CONFIG.partition("[mesh]")[0], *CONFIG.partition("[mesh]")[1:])
    named, _, tables = rest.partition("\n\n")
    config = read(tmp_path, f'include = ["m.toml"]\n{head}\n{tables}', m=meshes + named + "\n")
    assert config.reshards == (WQ,)


def test_a_group_with_its_tensors(tmp_path: Path) -> None:
    config = read(tmp_path, CONFIG + GROUP)
    (group,) = config.groups
    assert (group.name, group.members) == ("weights", ("layer0_wq", "layer0_norm"))
    found = by_name(config)
    assert found["layer0_wq"].to_dict() == {
        key: value for key, value in WQ.to_dict().items() if key != "gradient"
    } | {"name": "layer0_wq"}
    norm = found["layer0_norm"]
    assert (norm.dtype, norm.source, norm.shape) == ("bfloat16", '[{"fsdp"}]', (64,))


def test_a_group_of_names(tmp_path: Path) -> None:
    text = CONFIG + '[[group]]\nname = "some"\nmembers = ["wq"]\n'
    (group,) = read(tmp_path, text).groups
    assert (group.name, group.members) == ("some", ("wq",))


def test_some_of_a_config(tmp_path: Path) -> None:
    config = read(tmp_path, CONFIG + GROUP)
    assert config.names() == ("wq", "layer0_wq", "layer0_norm", "weights")
    assert config.select(["wq"]).names() == ("wq",)
    assert config.select(["weights"]).names() == ("layer0_wq", "layer0_norm", "weights")
    with pytest.raises(InputError) as caught:
        config.select(["weight"])
    assert str(caught.value) == exactly(
        f"""
        {tmp_path}/shardwright.toml has no operation with this name; did you mean weights?
        got: weight
        expected: one of wq, layer0_wq, layer0_norm, weights
        """
    )


WRONG: list[tuple[str, str]] = [
    (
        CONFIG.replace('mesh = "trainer"', 'mesh = "trainr"', 1),
        """
        shardwright.toml, line 11, reshard 'wq', mesh: no mesh with this name; did you mean trainer?
          mesh = "trainr"
                  ^^^^^^
        got: trainr
        expected: one of trainer, server, or the axes of a mesh, as x=2,y=3
        """,
    ),
    (
        CONFIG.replace('dtype = "bfloat16"', 'dtyp = "bfloat16"'),
        """
        shardwright.toml, line 3, defaults, dtyp: unknown key; did you mean dtype?
          dtyp = "bfloat16"
          ^^^^
        got: dtyp
        expected: one of mesh, shape, dtype, source, target, target_mesh, source_split, \
target_split, backends, strategy, topology, memory_limit, gradient, single_file, features
        """,
    ),
    (
        CONFIG + 'dtyp = "int8"  # a slip\n',
        """
        shardwright.toml, line 17, reshard 'wq', dtyp: unknown key; did you mean dtype?
          dtyp = "int8"  # a slip
          ^^^^
        got: dtyp
        expected: one of name, mesh, shape, dtype, source, target, target_mesh, source_split, \
target_split, backends, strategy, topology, memory_limit, gradient, single_file, features, \
collective_id
        """,
    ),
    (
        CONFIG.replace('"bfloat16"', '"bfloat17"'),
        """
        shardwright.toml, line 3, defaults, dtype: unknown element type; did you mean \
bfloat16?
          dtype = "bfloat17"
                   ^^^^^^^^
        got: bfloat17
        expected: one of bool, int8, int16, int32, int64, uint8, uint16, uint32, float16, \
bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
        """,
    ),
    (
        CONFIG.replace("fsdp=4,tp=2", "fsdp=4,fsdp=2"),
        """
        shardwright.toml, line 6, mesh, trainer: axis names must be distinct
          trainer = "fsdp=4,fsdp=2"   # the first eight
                            ^^^^
        got: "fsdp" twice
        expected: a different name
        """,
    ),
    (
        CONFIG.replace('out = "made"', "out = 3"),
        """
        shardwright.toml, line 1, out: out must be a string
          out = 3
          ^^^^^^^
        got: 3
        expected: a folder's path
        """,
    ),
    (
        "includ = ['a.toml']\n" + CONFIG,
        """
        shardwright.toml, line 1, includ: unknown key; did you mean include?
          includ = ['a.toml']
          ^^^^^^
        got: includ
        expected: one of reshard, collective, matmul, relayout, model, program, group, mesh, defaults, include, out, learned
        """,  # noqa: E501
    ),
    (
        CONFIG + GROUP.replace("shape = [64],", "shap = [64],"),
        """
        shardwright.toml, line 25, tensor 'layer0.norm', shap: unknown key; did you mean shape?
            {name = "layer0.norm", shap = [64], source = '[{"fsdp"}]', target = '[{}]'},
                                   ^^^^
        got: shap
        expected: one of name, mesh, shape, dtype, source, target, target_mesh, source_split, \
target_split, backends, strategy, topology, memory_limit, gradient, single_file, features, \
collective_id
        """,
    ),
    (
        CONFIG + GROUP.replace("layer0.norm", "layer0.wq"),
        """
        shardwright.toml, line 25, name: two operations must not have the same name
            {name = "layer0.wq", shape = [64], source = '[{"fsdp"}]', target = '[{}]'},
                     ^^^^^^^^^
        got: layer0_wq
        expected: a different name for each
        """,
    ),
    (
        CONFIG + GROUP.replace("layer0.norm", "b").replace("[64],", "[6], target_mesh = 'tp=4',"),
        """
        shardwright.toml, line 25, tensor 'b', target_mesh: the members of a group must be on \
the same devices in the same order
            {name = "b", shape = [6], target_mesh = 'tp=4', source = '[{"fsdp"}]', target = '[{}]'},
                                                     ^^^^
        got: the target mesh of b on devices 0, 1, 2, 3
        expected: devices 8, 9, 10, 11, as for layer0_wq
        """,
    ),
    (
        CONFIG + GROUP.replace("tensors =", "tensor ="),
        """
        shardwright.toml, line 23, group 'weights', tensor: unknown key; did you mean tensors?
          tensor = [
          ^^^^^^
        got: tensor
        expected: one of name, tensors, mesh, shape, dtype, source, target, target_mesh, \
source_split, target_split, backends, strategy, topology, memory_limit, gradient, single_file, \
features, \
collective_id
        """,
    ),
    (
        CONFIG + GROUP.partition("tensors")[0],
        """
        shardwright.toml, line 17, group 'weights', tensors: a group must have tensors
          [[group]]
          ^^^^^^^^^
        expected: tensors = [{name = "wq", …}], or members = ["wq"] of [[reshard]] tables
        """,
    ),
    (
        CONFIG + '[[group]]\nname = "all"\nmembers = ["wk"]\n',
        """
        shardwright.toml, line 19, group 'all', members: no such reshard
          members = ["wk"]
          ^^^^^^^^^^^^^^^^
        got: wk
        expected: names of [[reshard]] tables
        """,
    ),
    (
        CONFIG + '[[group]]\nname = "all"\nmembers = ["wq", "wq"]\n',
        """
        shardwright.toml, line 19, group 'all', members: a member must occur only once in a group
          members = ["wq", "wq"]
          ^^^^^^^^^^^^^^^^^^^^^^
        got: wq twice
        expected: each name once
        """,
    ),
    (
        CONFIG + '[[group]]\nname = "wq"\nmembers = ["wq"]\n',
        """
        shardwright.toml, line 18, name: two operations must not have the same name
          name = "wq"
                  ^^
        got: wq
        expected: a different name for each
        """,
    ),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_mistakes(text: str, expected: str, tmp_path: Path) -> None:
    assert problem(tmp_path, text) == exactly(expected)


INCLUDED: list[tuple[str, dict[str, str], str]] = [
    (
        'include = ["layer.toml"]\n' + CONFIG,
        {},
        """
        shardwright.toml, line 1, include: no such file
          include = ["layer.toml"]
          ^^^^^^^^^^^^^^^^^^^^^^^^
        got: layer.toml
        expected: a path relative to this file
        """,
    ),
    (
        'include = "layer.toml"\n' + CONFIG,
        {},
        """
        shardwright.toml, line 1, include: include must be a list of files
          include = "layer.toml"
                     ^^^^^^^^^^
        got: layer.toml
        expected: paths relative to this file, for example ["more/reshards.toml"]
        """,
    ),
    (
        'include = ["a.toml"]\n' + CONFIG,
        {"a": 'include = ["b.toml"]\n', "b": 'include = [\n  "a.toml",\n]\n'},
        """
        b.toml, line 1, include: includes must not form a cycle
          include = [
          ^^^^^^^^^^^
        got: a.toml -> b.toml -> a.toml
        expected: a file that does not include this one
        """,
    ),
    (
        'include = ["a.toml", "b.toml"]\n' + CONFIG,
        {"a": 'include = ["b.toml"]\n', "b": LAYER},
        """
        shardwright.toml, line 1, include: a file must not be included twice
          include = ["a.toml", "b.toml"]
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        got: b.toml
        expected: an include of it in only one file
        """,
    ),
    (
        'include = ["a.toml"]\n' + CONFIG,
        {"a": 'out = "there"\n' + LAYER},
        """
        a.toml, line 1, out: an included file must not set `out`
          out = "there"
                 ^^^^^
        got: there
        expected: `out` only in shardwright.toml
        """,
    ),
    (
        'include = ["a.toml"]\n' + CONFIG,
        {"a": '[mesh]\ntrainer = "tp=2"\n' + LAYER},
        """
        shardwright.toml, line 7, mesh, trainer: two meshes must not have the same name
          trainer = "fsdp=4,tp=2"   # the first eight
                     ^^^^^^^^^^^
        got: <["fsdp"=4, "tp"=2]>
        expected: a different name
        """,
    ),
    (
        'include = ["a.toml"]\n' + CONFIG,
        {"a": LAYER.replace("wk", "wq")},
        """
        shardwright.toml, line 11, name: two operations must not have the same name
          name = "wq"
                  ^^
        got: wq
        expected: a different name for each
        """,
    ),
]


@pytest.mark.parametrize(("text", "others", "expected"), INCLUDED)
def test_mistakes_of_includes(
    text: str, others: dict[str, str], expected: str, tmp_path: Path
) -> None:
    assert problem(tmp_path, text, **others) == exactly(expected)


@pytest.mark.parametrize(
    "tables",
    [
        "reshard = [\n  {name = 'a', mesh = 'x=2', shape = [4], dtype = 'int8',"
        " source = '[{}]', target = '[{\"y\"}]'},\n]\n",
        '# [[reshard]]\n[[ reshard ]] # [[reshard]]\nname = \'a\'\nmesh = "x=2" # "\n\n'
        '"target" = \'[{"y"}]\'\nshape = [\n  4, # ]\n]\ndtype = """int8"""\n'
        'source = """\\\n[{}]"""\n',
    ],
)
def test_tables_of_any_form_are_located(tables: str, tmp_path: Path) -> None:
    """In line, under headers with spaces, beside texts and comments that look like others."""
    found = problem(tmp_path, tables)
    lines = tables.split("\n")
    place = next(number for number, line in enumerate(lines, 1) if '{"y"}' in line)
    assert found.splitlines()[0] == (
        f"shardwright.toml, line {place}, reshard 'a', target: an axis must exist in the mesh"
    )
