"""Mistakes with unreduced axes: the whole message from Python, the command line and a config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import run
from strategies import message

import shardwright as sw

KEYS = ("mesh", "shape", "dtype", "source", "target")


@dataclass(frozen=True)
class Mistake:
    """What is typed, where, and what is said: the rule, the words that are marked, what was got and
    what was expected. `by_place`: whether a call of Python knows where in its text they stand."""

    source: str
    target: str
    dtype: str
    argument: str
    rule: str
    marked: str
    got: str
    expected: str
    by_place: bool = False

    @property
    def typed(self) -> dict[str, str]:
        texts = ("x=2,y=6", "6x6", self.dtype, self.source, self.target)
        return dict(zip(KEYS, texts, strict=True))

    def said(self, named: str, before: str = "", after: str = "", places: bool = True) -> str:
        """The message of an argument by a name, its text between what a config has around it."""
        text = self.typed[self.argument]
        at = 2 + len(before) + text.rindex(self.marked)
        marks = f"  {before}{text}{after}\n{' ' * at}{'^' * len(self.marked)}\n" if places else ""
        return f"{named}: {self.rule}\n{marks}got: {self.got}\nexpected: {self.expected}"


NO_SUM = (
    "dtype",
    "the dtype of partial sums must support addition, which booleans do not",
    "bool",
    "bool",
    "an integer or a floating dtype, such as int8; or unreduced=max{…}",
)
MISTAKES = {
    "an unreduced axis that splits": Mistake(
        '[{"x"}, {}], unreduced={"x"}', "[{}, {}]", "float32",
        "source", "an axis or sub-axis may be used only once",
        '"x"', '"x" in dimension 0 and in unreduced={…}', '"x" in one place only', by_place=True,
    ),
    "one that splits in the target": Mistake(
        "[{}, {}]", '[{}, {"y"}], unreduced={"y"}', "float32",
        "target", "an axis or sub-axis may be used only once",
        '"y"', '"y" in dimension 1 and in unreduced={…}', '"y" in one place only', by_place=True,
    ),
    "one of which a part splits": Mistake(
        '[{"y":(1)2}, {}], unreduced=max{"y"}', "[{}, {}]", "int8",
        "source", "references to one axis must not overlap",
        '"y"', '"y":(1)2 in dimension 0 and "y" in unreduced={…}',
        "sub-axes that do not overlap", by_place=True,
    ),
    "one twice": Mistake(
        '[{}, {}], unreduced={"x", "x"}', "[{}, {}]", "float32",
        "source", "an axis or sub-axis may be used only once",
        '"x"', '"x" twice in unreduced={…}', '"x" in one place only', by_place=True,
    ),
    "a sum of bool": Mistake('[{}, {}], unreduced={"x"}', "[{}, {}]", "bool", *NO_SUM),
    "a new sum of bool": Mistake("[{}, {}]", '[{}, {}], unreduced={"x"}', "bool", *NO_SUM),
    "a maximum of what has no order": Mistake(
        '[{}, {}], unreduced=max{"x"}', "[{}, {}]", "complex64",
        "dtype", "unknown element type", "complex64", "complex64",
        "one of bool, int8, int16, int32, int64, uint8, uint16, uint32, float16, bfloat16, "
        "float32, float64, float8_e4m3fn, float8_e5m2",
    ),
    "an operator that is none": Mistake(
        '[{}, {}], unreduced=mean{"x"}', "[{}, {}]", "float32",
        "source", "the text is not a sharding", "mean", "mean", "'sum', 'max', 'min' or '{'",
        by_place=True,
    ),
    "kept by another operator": Mistake(
        '[{}, {}], unreduced=max{"x"}', '[{}, {}], unreduced={"x"}', "float32",
        "target", "axes that stay unreduced must keep their operator",
        '[{}, {}], unreduced={"x"}',
        '[{}, {}], unreduced={"x"}, from [{}, {}], unreduced=max{"x"}', "unreduced=max{…}",
    ),
    "kept and new ones by two operators": Mistake(
        '[{}, {}], unreduced={"x"}', '[{}, {}], unreduced=min{"x", "y"}', "float32",
        "target", "axes that stay unreduced must keep their operator",
        '[{}, {}], unreduced=min{"x", "y"}',
        '[{}, {}], unreduced=min{"x", "y"}, from [{}, {}], unreduced={"x"}', "unreduced={…}",
    ),
    "sub-axes of no splitting": Mistake(
        '[{}, {}], unreduced={"y":(2)3}', '[{}, {}], unreduced={"y":(3)2}', "float32",
        "target", "unreduced sub-axes of both sides must fit one factorization of their axis",
        '[{}, {}], unreduced={"y":(3)2}', '"y":(2)3 in source, "y":(3)2 in target, of "y"=6',
        "each border a multiple of the previous border",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_from_python(mistake: Mistake) -> None:
    typed = mistake.typed
    assert message(
        lambda: sw.Reshard(
            (6, 6), typed["dtype"], typed["source"], typed["target"], mesh={"x": 2, "y": 6}
        )
    ) == mistake.said(mistake.argument, places=mistake.by_place)


@pytest.mark.parametrize("command", ["plan", "emit"])
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_from_the_command_line(mistake: Mistake, command: str, tmp_path: Path) -> None:
    words = [word for key, text in mistake.typed.items() for word in (f"--{key}", text)]
    more = ["--name", "sum", "-o", tmp_path / "made"] if command == "emit" else []
    result = run(command, *words, *more)
    expected = mistake.said(f"error: --{mistake.argument}")
    assert (result.code, result.err.rstrip("\n"), result.out) == (2, expected, "")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_from_a_config(mistake: Mistake, tmp_path: Path) -> None:
    config, key = tmp_path / "sums.toml", mistake.argument
    lines = ['out = "made"', "[[reshard]]", 'name = "sum"']
    lines += [f"{name} = '{text}'" for name, text in mistake.typed.items()]
    config.write_text("\n".join(lines))
    result = run("emit", config)
    where = f"{config}, line {4 + KEYS.index(key)}, reshard 'sum', {key}"
    expected = mistake.said(f"error: {where}", f"{key} = '", "'")
    assert (result.code, result.err.rstrip("\n"), result.out) == (2, expected, "")
    assert [*tmp_path.iterdir()] == [config]
