"""Verifying bundles on disk: emitted modules pass, wrong kernels planted in them are caught."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.verify import Case, Report
from shardwright.codegen.operations.verify.twin import MAX_ELEMENTS, form, twin_extent, twins
from shardwright.ir import Mesh, Reshard
from shardwright.ir.errors import InputError

BACKENDS = ("pallas_tpu", "triton_gpu")
Edits = tuple[tuple[str, str], ...]

# name: (edits as (regular expression, text instead), the detail as a regular expression). Of the
# edits those apply whose words the module has; the forms of a kernel differ in words.
Faults = dict[str, tuple[Edits, str]]

WRONG = r"device \d: \d+ of \d+ elements are wrong; element .*"
UNWRITTEN = r"device \d: \d+ of \d+ elements are wrong; element .*: got: bits 0x{}, expected: t.*"
OUTSIDE = r"a kernel (loads from|stores to) memory outside every shard, \d+ bytes at once"

LEFT = r"Semaphore \d+ has non-zero count for \d \(global core \d\) at kernel exit: \d+"

PALLAS: Faults = {
    "right": ((), ""),
    "start_off_by_one": (
        (
            (r"self\.host\.source\.box\(me\)", "tuple(n - 1 for n in self.host.source.box(me))"),
            (r"own = \[low for low", "own = [low - 1 for low"),
            (r"in_x = \(0, peer \*", "in_x = (0, (3 - peer) *"),
            (r"return \(0, peer \*", "return (0, (7 - peer) *"),
        ),
        rf"{WRONG}|IndexError: .*",
    ),
    "tile_left_out": (
        (
            (r"(\(self\.holder\(own, receiver, piece\) == me\))", r"\1 & (receiver != 1)"),
            (r"(pl\.when\()(peer != me)(\)\(lambda: remote_copy)", r"\1(\2) & (peer != 1)\3"),
        ),
        r"a wait that never ends: core \d waits for \d+ of semaphore \d+, which stands at \d+ .*",
    ),
    "tile_left_out_by_both_ends": (
        (
            (
                r"(\(self\.holder\(own, receiver, piece\) == me\))",
                r"\1 & ((receiver != 1) | (me != 0))",
            ),
            (
                r"comes = is_full\(ranges\(box\)\)",
                "sender = self.holder(shard, receiver, piece)\n"
                "        comes = is_full(ranges(box)) & ((sender != 0) | (receiver != 1))",
            ),
            (r"TILE = \((8|20)(, .*kernel order)", r"TILE = (7\2"),
            (r"fori_loop\(np\.int32\(0\), ", "fori_loop(np.int32(1), "),
        ),
        rf"{UNWRITTEN.format('7f[0-9a-f]*')}|a wait that never ends: .*",
    ),
    "tiles_overlap": (
        (
            (r"slot_number\(source_shard\(me\), .*, 1\)", "0"),
            (r"in_y = \(me", "in_y = (0 * me"),
            (r"y\.at\[operand\(there\)\]", "y.at[0]"),
            (r" - \(shard\[\d\] - met\[\d\]\) \* \d+", ""),
        ),
        r"race: write of \('hbm'.*\)\] against write of \('hbm'.*\)\]",
    ),
    "receive_wait_left_out": (
        (
            (r"pltpu\.make_async_copy\(place, place, received\)\.wait", "lambda: None"),
            (r"wait_for\(y, received\)", "None"),
            (r"wait_for\((units_at\(stage, units\)|slot|come), received\)", "None"),
        ),
        rf"{UNWRITTEN.format('7f[0-9a-f]*')}|{LEFT}",
    ),
    "send_wait_left_out": (
        (
            (r"\((copy|push\(1 - slot, older\))\.wait_send\)", "(lambda: None)"),
            (r"wait_for\((tile|x\.at\[operand\(0\)\]), sent\)", "None"),
            (r"wait_for\(within\(chunks, slot, held, slots=6\), sent\.at\[slot\]\)", "None"),
        ),
        LEFT,
    ),
    "right_after_that": ((), ""),
}

STATED = {
    "tile_left_out": r"only the receivers list \(0, 1, .*\)",
    "tile_left_out_by_both_ends": (
        "device 1: the tiles sent to it do not fill its shard exactly once"
    ),
}
"""How faults show where kernels take what moves from what the module states: before any runs."""
LISTED: Faults = {
    name: (edits, STATED.get(name, detail)) for name, (edits, detail) in PALLAS.items()
}
UNPACKED = {"tile_left_out_by_both_ends": WRONG}
"""XLA starts with zeros where it unpacks tiles."""
THIN: Faults = {
    name: (edits, UNPACKED.get(name, detail)) for name, (edits, detail) in PALLAS.items()
}

TRITON: Faults = {
    "right": ((), ""),
    "start_off_by_one": (
        ((r"read=\(low0 - from0\)", "read=(low0 - from0 + 1)"),),
        rf"{WRONG}|{OUTSIDE}",
    ),
    "tile_left_out": (
        ((r"if low0 < high0:", "if (low0 < high0) & (a0 == 0):"),),
        UNWRITTEN.format("ff"),
    ),
    "tiles_overlap": (((r"write=\(low0 - to0\) \* 3", "write=0 * low0"),), WRONG),
    "a_sender_left_out": (
        ((r"(?s)(def senders.*?)for a1 in range\((.*?) \+ 2\)", r"\1for a1 in range(\2 + 1)"),),
        r"only the senders list \(\d, \d, .*\)",
    ),
    "tile_stored_twice": (
        (
            (r"Tiles\(number=4", "Tiles(number=8"),
            (r"place % 4, place // 4", "place // 2 % 4, place // 8"),
        ),
        r"device 0: element \[0, 0\] is stored 2 times, expected: once",
    ),
    "few_programs_with_one_block_each": (
        ((r"tl\.num_programs\(0\)", "BLOCK.number"),),
        UNWRITTEN.format("00"),
    ),
    "right_after_that": ((), ""),
}


def uneven() -> Reshard:
    """A small reshard whose tiles differ in size: 7x6 on 2x3."""
    mesh = Mesh({"x": 2, "y": 3})
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    return Reshard((7, 6), "int8", source, target)


def small() -> Reshard:
    """A reshard that takes a moment on every backend."""
    mesh = Mesh({"x": 2})
    return Reshard((4, 4), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]'))


def aligned() -> Reshard:
    """A reshard whose tiles a TPU moves from shard to shard."""
    mesh = Mesh({"x": 4})
    source, target = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    return Reshard((32, 512), "float32", source, target)


def thin() -> Reshard:
    """A reshard whose tiles, all of one shape, a TPU moves in slots."""
    mesh = Mesh({"x": 8})
    source, target = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    return Reshard((160, 160), "float32", source, target)


def shared() -> Reshard:
    """The same from replicas, which share what they send."""
    mesh = Mesh({"x": 2, "y": 4})
    source, target = mesh.sharding('[{"y"}, {}]'), mesh.sharding('[{}, {"y"}]')
    return Reshard((160, 160), "float32", source, target)


def planted(root: Path, backend: str, faults: Faults, reshard: Reshard) -> dict[str, Report]:
    """One bundle for each fault, its module edited, with the support of a TPU's kernels in it,
    verified together."""
    bundle = emit(reshard, (backend,), single_file=backend == "pallas_tpu")
    for name, (edits, _) in faults.items():
        bundle.write(root / name)
        module = root / name / f"{backend}.py"
        text = emitted = module.read_text()
        for words, instead in edits:
            text = re.sub(words, instead, text)
        assert (text == emitted) == (not edits), f"{name}: the module has none of the words"
        module.write_text(text)
    return {report.name: report for report in verify(root)}


@pytest.mark.parametrize(
    ("runtime", "faults", "reshard"),
    [
        pytest.param("jax", LISTED, uneven(), marks=pytest.mark.slow),
        pytest.param("jax", PALLAS, aligned(), marks=pytest.mark.slow),
        pytest.param("jax", THIN, thin(), marks=pytest.mark.slow),
        pytest.param("jax", LISTED, shared(), marks=pytest.mark.slow),
        ("triton", TRITON, uneven()),
    ],
    ids=["windows", "direct", "thin", "slots", "triton"],
)
def test_planted_faults(runtime: str, faults: Faults, reshard: Reshard, tmp_path: Path) -> None:
    pytest.importorskip(runtime, reason=f"{runtime} is not installed")
    backend = "pallas_tpu" if runtime == "jax" else "triton_gpu"
    reports = planted(tmp_path / "generated", backend, faults, reshard)
    wrong = [
        (name, reports[name].verdict, reports[name].detail)
        for name, (_, detail) in faults.items()
        if reports[name].verdict != ("failed" if detail else "ok")
        or not re.fullmatch(detail, reports[name].detail)
    ]
    assert wrong == []


def large() -> Reshard:
    """A reshard of 8 MiB whose rows do not divide: too large to run here."""
    mesh = Mesh({"x": 2, "y": 2})
    source, target = mesh.sharding('[{"x", "y"}, {}]'), mesh.sharding('[{"y"}, {"x"}]')
    return Reshard((4099, 512), "float32", source, target)


PROOF = (
    "every element of every target shard (4 devices) is written exactly once, from the source "
    "element of its index"
)
DETAILS = {
    "pallas_tpu": "twin 35x256; at full size: constants, index functions, transfers, hints, "
    f"windows, protocol, text, backward; {PROOF}",
    "triton_gpu": (
        "twin 11x4; at full size: constants, index functions, transfers, sampled programs, "
        f"copies, order of copies, text, backward; {PROOF}"
    ),
}


def edit(module: Path, words: str, instead: str) -> None:
    """Change words of a module on disk."""
    text = module.read_text()
    assert words in text
    module.write_text(text.replace(words, instead))


def needs_both_runtimes() -> None:
    for runtime in ("jax", "triton", "torch"):
        pytest.importorskip(runtime, reason=f"{runtime} is not installed")


@pytest.mark.slow
def test_large_tensors_are_verified_on_a_twin(tmp_path: Path) -> None:
    needs_both_runtimes()
    for name in ("as_emitted", "edited", "moves_wrongly"):
        emit(large(), gradient=True).write(tmp_path / name)
    edit(tmp_path / "edited" / "pallas_tpu.py", "import os", "import os  # by hand")
    edit(tmp_path / "edited" / "triton_gpu.py", "import os", "import os  # by hand")
    instead = {"holder": "return 0", "senders": "return [0]"}
    for backend, name in zip(BACKENDS, instead, strict=True):
        edit(
            tmp_path / "moves_wrongly" / f"{backend}.py",
            f"def {name}(",
            f"def {name}(*_): {instead[name]}\n\n\ndef right(",
        )
    reports = {(r.name, r.backend): (r.verdict, r.detail) for r in verify(tmp_path)}
    by_hand = "differs from a new emission: see `shardwright check`"
    # A tile from another device than its holder, which is left over at both ends.
    wrong = {"pallas_tpu": r"1, 0, .*\) exactly once", "triton_gpu": r".*\) exactly once"}
    for backend in BACKENDS:
        assert reports["as_emitted", backend] == ("ok", DETAILS[backend])
        assert reports["edited", backend] == ("failed", by_hand)
        verdict, detail = reports["moves_wrongly", backend]
        assert verdict == "failed"
        assert re.fullmatch(r"the receivers' forms do not move \(" + wrong[backend], detail)


def test_triton_programs_at_full_size(tmp_path: Path) -> None:
    """Faults that only large tensors have: in tiles of many blocks, and beyond 32 bits."""
    needs_both_runtimes()
    mesh = Mesh({"x": 2})
    wide = Reshard(
        (2**17, 2**16 + 1), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    )
    faults = {
        "start_off_by_one": (large(), "read=to1", "read=to1 + 512"),
        "every_block_is_the_first": (large(), "block=tl.cast(block", "block=tl.cast(0 * block"),
        "too_many_rows": (large(), "rows=width0", "rows=1 + width0"),
        "narrow_offsets": (wide, "tl.int64)", "tl.int32)"),
    }
    for name, (reshard, words, instead) in faults.items():
        emit(reshard, ("triton_gpu",)).write(tmp_path / name)
        edit(tmp_path / name / "triton_gpu.py", words, instead)
    emit(wide, ("triton_gpu",)).write(tmp_path / "wide")
    details = {report.name: report.detail for report in verify(tmp_path)}
    expected = {
        "start_off_by_one": r"at full size, (a program copies byte \d+ of|a kernel loads from) .*",
        "every_block_is_the_first": "at full size, two programs store to the same element",
        "too_many_rows": "at full size, .*",
        "narrow_offsets": "at full size, a kernel (loads|stores) .* memory outside every shard",
        "wide": r"twin 4x5 of another form; .*",
    }
    wrong = [
        (name, details[name])
        for name, detail in expected.items()
        if not re.fullmatch(detail, details[name])
    ]
    assert wrong == []


def test_paths_backends_and_progress(tmp_path: Path) -> None:
    needs_both_runtimes()
    for name in ("one", "two"):
        emit(small()).write(tmp_path / name)
    seen: list[tuple[int, int, Report | None]] = []
    reports = verify(
        [tmp_path / "two", tmp_path / "two"],
        backends=("triton_gpu",),
        progress=lambda done, total, report: seen.append((done, total, report)),
    )
    (report,) = reports
    assert (report.name, report.backend, report.devices) == ("two", "triton_gpu", 2)
    assert report.verdict == "ok"
    assert seen == [(0, 1, None), (1, 1, report)]
    both = verify(tmp_path)
    assert [(r.name, r.backend, r.verdict) for r in both] == [
        (name, backend, "ok") for name in ("one", "two") for backend in BACKENDS
    ]


def test_workers_run_what_is_installed_and_not_the_folder_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a clone, whose folder `shardwright` lacks what packaging puts there."""
    pytest.importorskip("triton")
    emit(small(), ("triton_gpu",)).write(tmp_path / "bundles" / "a")
    (tmp_path / "shardwright").mkdir()
    (tmp_path / "shardwright" / "__init__.py").write_text("raise OSError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert [(r.verdict, r.detail) for r in verify("bundles")] == [("ok", "")]


def test_a_module_that_is_gone(tmp_path: Path) -> None:
    needs_both_runtimes()
    emit(uneven(), ("triton_gpu",)).write(tmp_path / "gone")
    module = tmp_path / "gone" / "triton_gpu.py"
    module.unlink()
    (report,) = verify(tmp_path)
    assert report.verdict == "failed"
    assert report.detail == f"the module is missing: {module}"


def test_an_unknown_backend(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        verify(tmp_path, backends=["cuda"])
    assert str(error.value) == (
        "backends: no such backend\ngot: cuda\nexpected: one of pallas_tpu, triton_gpu, jax_xla"
    )


def test_no_bundles(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no bundles"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("extent", "source", "target", "split", "expected"),
    [
        (8192, (8,), (), "flat", 16),
        (8192, (), (4,), "flat", 8),
        (50257, (2, 4), (4,), "flat", 65),
        (10007, (2, 2), (4,), "nested", 11),
        (5, (2, 2), (2,), "nested", 5),  # as small as it can be
        (3, (8,), (3,), "flat", 3),
    ],
)
def test_extents_of_twins(
    extent: int, source: tuple[int, ...], target: tuple[int, ...], split: str, expected: int
) -> None:
    assert twin_extent(extent, (source, split), (target, "flat")) == expected


def test_twins_grow_while_they_can_run() -> None:
    case = Case.of(large(), "large", "triton_gpu", Path())
    shapes = [small.shape for small in twins(large(), case.source, case.target)]
    assert shapes[:4] == [(11, 4), (35, 256), (67, 256), (131, 256)]
    assert (11, 8) in shapes
    assert all(extent % 4 == 3 and columns % 2 == 0 for extent, columns in shapes)
    assert all(math.prod(shape) <= MAX_ELEMENTS for shape in shapes)


def test_the_form_of_a_module_is_its_code_without_numbers() -> None:
    assert form("a = b + 3  # three\n") == form("a = b + 5")
    assert form("a = b + 3") != form("a = b - 3")
    assert form("a = b.to(int64) + 3") != form("a = b + 3")


def test_the_bound_is_what_the_docs_say() -> None:
    assert MAX_ELEMENTS == 262144
