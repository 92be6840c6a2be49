"""Collective ids: no two operations of one config share one, and they stay where they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import flags, mistake, ok
from strategies import exactly

import shardwright as sw
from shardwright.codegen.spec.collective_ids import bundle_id, group_id, matmul_id
from shardwright.codegen.spec.config import read_config
from shardwright.codegen.spec.description import BUNDLE_IDS
from shardwright.codegen.spec.group import GROUP_IDS
from shardwright.ir.errors import InputError

HEAD = """\
[defaults]
mesh = "x=2"
dtype = "float32"
backends = ["pallas_tpu"]

"""


def table(name: str, more: str = "", shape: str = "[4, 4]") -> str:
    return (
        f'[[reshard]]\nname = "{name}"\nshape = {shape}\n'
        f"source = '[{{\"x\"}}, {{}}]'\ntarget = '[{{}}, {{\"x\"}}]'\n{more}\n"
    )


# Each is another bundle that moves the same.
TABLES = HEAD + table("a") + table("b", "gradient = true\n") + table("c", "single_file = true\n")
GROUPS = """\
[[group]]
name = "all"
members = ["a", "b"]
[[group]]
name = "more"
members = ["a", "c"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, in which one is, with a config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardwright.toml").write_text(TABLES + GROUPS)
    return tmp_path


def ids(home: Path) -> dict[str, int]:
    """Every id that a module states, by its path; of a group the first."""
    found = {}
    for path in (home / "generated").glob("*/pallas_tpu*.py"):
        said = re.findall(r"^COLLECTIVE_ID = (\d+)", path.read_text(), re.M)
        found[str(path.relative_to(home / "generated"))] = int(*said)
    return found


def test_operations_that_move_the_same(home: Path) -> None:
    """The first one has the id that it has alone; the ids of others are in their descriptions, so
    that they stay whatever is emitted."""
    ok("emit")
    found = ids(home)
    first = found["a/pallas_tpu.py"]
    bundles = {name: value for name, value in found.items() if name[0] in "abc" and name[1] == "/"}
    place, every = BUNDLE_IDS.index(first), len(BUNDLE_IDS)
    second, third = (BUNDLE_IDS[(place + more) % every] for more in (1, 2))
    assert bundles == {
        "a/pallas_tpu.py": first,
        "b/pallas_tpu.py": second,
        "b/pallas_tpu_backward.py": second + 1,
        "c/pallas_tpu.py": third,
    }
    assert len({found["all/pallas_tpu.py"], found["more/pallas_tpu.py"]} - {*GROUP_IDS}) == 0
    assert ok("check")
    assert ok("emit", "b") == "generated/b: unchanged\n"
    assert ok("emit", "generated/manifest.json", "--name", "c") == "generated/c: unchanged\n"
    text = (home / "generated/b/pallas_tpu.py").read_text()
    assert f"--gradient --collective-id {second} --name b" in text
    (home / "shardwright.toml").write_text(TABLES.replace(table("a"), "") + table("a"))
    ok("emit")
    assert ids(home)["b/pallas_tpu.py"] == first


def test_groups_whose_ids_would_be_alike(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwright.codegen.spec import collective_ids

    monkeypatch.setattr(collective_ids, "_hashed", lambda among, what: among[-1])
    ok("emit")
    found = ids(home)
    assert found["all/pallas_tpu.py"] == GROUP_IDS[-1]
    assert found["more/pallas_tpu.py"] == GROUP_IDS[0]
    assert [found[f"{name}/pallas_tpu.py"] for name in "abc"] == [
        BUNDLE_IDS[-1],
        BUNDLE_IDS[0],
        BUNDLE_IDS[1],
    ]
    assert ok("check")
    assert "collective_id = 28672" in "\n".join(read_config("shardwright.toml").groups[1].lines())
    assert ok("emit", "generated/manifest.json", "--name", "more").endswith("more: unchanged\n")


def test_many_operations(tmp_path: Path) -> None:
    """More than would all differ by chance."""
    path = tmp_path / "many.toml"
    tables = [table(f"t{number}", shape=f"[{number}, 4]") for number in range(1, 400)]
    groups = [f'[[group]]\nname = "g{n}"\nmembers = ["t{n}", "t{n + 1}"]\n' for n in range(1, 60)]
    path.write_text(HEAD + "".join(tables) + "".join(groups))
    config = read_config(path)
    reshards = {each.name: each.reshard() for each in config.reshards}
    bundles = [*map(bundle_id, config.reshards)]
    first = [group_id(group, reshards) for group in config.groups]
    assert len({*bundles}) == 399
    assert len({*first}) == 59
    assert {*bundles} <= {*BUNDLE_IDS}
    assert {*first} <= {*GROUP_IDS}
    assert any(each.collective_id is not None for each in (*config.reshards, *config.groups))


def test_where_no_kernels_meet_none_is_given(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(TABLES.replace("pallas_tpu", "triton_gpu") + GROUPS)
    config = read_config(path)
    assert {each.collective_id for each in (*config.reshards, *config.groups)} == {None}


def test_one_that_is_said(home: Path) -> None:
    said = table("a", "collective_id = 8\n")
    (home / "shardwright.toml").write_text(
        HEAD + said + GROUPS.partition("members")[0] + ('members = ["a"]\ncollective_id = 28680\n')
    )
    ok("emit")
    assert ids(home) == {"a/pallas_tpu.py": 8, "all/pallas_tpu.py": 28680}
    words = flags(name="a", backends="pallas_tpu", collective_id="16")
    ok("emit", *words, "-o", "others")
    assert "COLLECTIVE_ID = 16\n" in Path("others/a/pallas_tpu.py").read_text()
    bundle = sw.emit(read_config("shardwright.toml").reshards[0].reshard(), collective_id=12)
    assert "COLLECTIVE_ID = 12\n" in bundle.files("a")["pallas_tpu.py"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            HEAD
            + table("a", "collective_id = 8\n")
            + table("b", 'collective_id = 8\nstrategy = "direct"\n'),
            """
            shardwright.toml, line 18, reshard 'b', collective_id: two operations must not have \
the same collective id
              collective_id = 8
              ^^^^^^^^^^^^^^^^^
            got: 8, already taken by a
            expected: a different number for each
            """,
        ),
        (
            HEAD + table("a", "collective_id = 7\n"),
            """
            shardwright.toml, line 11, reshard 'a', collective_id: the id must be one that is \
reserved for this kind of operation
              collective_id = 7
              ^^^^^^^^^^^^^^^^^
            got: 7
            expected: a multiple of 4 from 0 to 28668
            """,
        ),
        (
            TABLES + GROUPS + "collective_id = 12\n",
            """
            shardwright.toml, line 32, group 'more', collective_id: the id must be one that is \
reserved for this kind of operation
              collective_id = 12
              ^^^^^^^^^^^^^^^^^^
            got: 12
            expected: a multiple of 8 from 28672 to 32760
            """,
        ),
    ],
)
def test_mistakes(text: str, expected: str, home: Path) -> None:
    (home / "shardwright.toml").write_text(text)
    assert mistake("emit") == exactly(expected)
    assert not (home / "generated").exists()


def test_a_flag_that_is_none() -> None:
    assert mistake("plan", *flags(collective_id="x")) == (
        "--collective-id: the id must be one that is reserved for this kind of operation\n"
        "got: x\n"
        "expected: a multiple of 4 from 0 to 28668"
    )


def test_matmuls_of_one_product_and_many(tmp_path: Path) -> None:
    """The same product for two topologies has two kernels; as many as would meet by chance differ,
    and from reshards too."""
    path = tmp_path / "products.toml"
    sides = "lhs = {{shape = [{0}, 8], sharding = '[{{\"x\"}}, {{}}]'}}\n"
    sides += "rhs = {{shape = [8, 8], sharding = '[{{}}, {{\"x\"}}]'}}\nout = '[{{\"x\"}}, {{}}]'\n"

    def product(name: str, rows: int, more: str = "") -> str:
        given = f'[[matmul]]\nname = "{name}"\nmesh = "x=4"\ndtype = "bf16"\n'
        return f'{given}{sides.format(rows)}backends = ["pallas_tpu"]\n{more}\n'

    alike = [product(each, 8, f'topology = "{each}:2x2"') for each in ("v5e", "v6e")]
    many = [product(f"p{number}", 4 * number) for number in range(3, 300)]
    path.write_text(HEAD + "".join((*alike, *many)) + table("a"))
    config = read_config(path)
    found = [*map(matmul_id, config.matmuls), *map(bundle_id, config.reshards)]
    assert len({*found}) == len(found) == 300
    assert any(each.collective_id is not None for each in config.matmuls)
    path.write_text(product("p", 8, "collective_id = 8") + product("q", 16, "collective_id = 8"))
    with pytest.raises(
        InputError, match="two operations must not have the same collective id"
    ) as raised:
        read_config(path)
    assert raised.value.got == "8, already taken by p"


def test_a_relayout_keeps_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reshard that would share the id of a relayout has another; one that says it is refused."""
    relayout = (
        '[[relayout]]\nname = "packed"\ntensors = {w = [4, 4]}\nsource = "w[{x}]"\ntarget = "w"\n'
    )
    (home / "shardwright.toml").write_text(HEAD + table("a") + relayout)
    (alone,) = read_config(home / "shardwright.toml").reshards
    own = bundle_id(alone)
    monkeypatch.setattr("shardwright.codegen.spec.collective_ids.relayout_id", lambda each: own)
    (moved,) = read_config(home / "shardwright.toml").reshards
    assert bundle_id(moved) not in (own, None)
    (home / "shardwright.toml").write_text(HEAD + table("a", f"collective_id = {own}\n") + relayout)
    assert f"got: {own}, already taken by packed" in mistake("check", home / "shardwright.toml")
