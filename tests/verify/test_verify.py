"""The verifier bites: two hand-written modules pass, and each wrong variant of them is caught.

`tests/mini` has the modules. A fault is a few words of one changed; the detail of its report is
matched in full.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import TESTS

from shardwright.codegen.checks.oracle.definition import Placement
from shardwright.codegen.operations.verify import Case, Report, pool, run_batch

MINI = TESTS / "mini"
X = ("x", None, None)
RIGHT = ""

# name: (edits as (words, words instead), the detail as a regular expression)
Faults = dict[str, tuple[tuple[tuple[str, str], ...], str]]

BOTH: Faults = {
    "a wrong constant": (
        (("SHAPE = (5, 4)", "SHAPE = (4, 5)"),),
        r"SHAPE: got: \(4, 5\), expected: \(5, 4\)",
    ),
    "a wrong text": (
        (("SOURCE = '[{\"x\"}, {}]'", "SOURCE = '[{}, {\"x\"}]'"),),
        r"SOURCE: got: '\[\{\}, \{\"x\"\}\]', expected: '\[\{\"x\"\}, \{\}\]'",
    ),
    "a missing name": ((("def target_box", "def target_range"),), "the module has no target_box"),
    "a name that __all__ only promises": (
        (("__all__ = [", '__all__ = ["nothing", '),),
        "the module has no nothing",
    ),
    "a wrong local shape": (
        (("else (2, 4)", "else (3, 4)"),),
        r"source_shape\(1\): got: \(3, 4\), expected: \(2, 4\)",
    ),
    "a wrong index function": (
        (("return 0, 5, position * 2, position * 2 + 2", "return 0, 5, position, position + 2"),),
        r"target_box\(1\), device 1: got: \(range\(0, 5\), range\(1, 3\)\), "
        r"expected: \(range\(0, 5\), range\(2, 4\)\)",
    ),
    "an exception": (
        (('"""', '"""Raises."""\nraise OSError("no luck")\n"""'),),
        "OSError: no luck",
    ),
    "no module at all": ((('"""', "("),), r"SyntaxError: .*"),
}

TRITON: Faults = {
    "right": ((), RIGHT),
    "start off by one": (
        (("read=position * 2", "read=1 - position"),),
        r"device 0: 10 of 10 elements are wrong; element \[0, 0\]: "
        r"got: t\[0, 1\], expected: t\[0, 0\]",
    ),
    "tile left out": (
        (("pull[(2,)]", "pull[(1,)]"),),
        r"device 0: 4 of 10 elements are wrong; element \[3, 0\]: "
        r"got: bits 0xffffffff, expected: t\[3, 0\]",
    ),
    "tile stored by the host, not by a kernel": (
        (
            ("pull[(2,)]", "pull[(1,)]"),
            (
                "return outputs",
                "for p, o in enumerate(outputs):\n"
                "        (o[:3] if p else o[3:])[:] = shards[1 - p][:, 2 * p : 2 * p + 2]\n"
                "    return outputs",
            ),
        ),
        r"device 0: element \[3, 0\] is stored 0 times, expected: once",
    ),
    "tiles overlap with the same values": (
        (("pull[(2,)]", "pull[(3,)]"), ("tl.program_id(0)", "tl.program_id(0) % 2")),
        r"device 0: element \[0, 0\] is stored 2 times, expected: once",
    ),
    "reads past a shard": (
        (("column, mask=mask", "column"),),
        "a kernel loads from memory outside every shard, 8 bytes at once",
    ),
    "writes past a shard": (
        (("column, tile, mask=mask", "column, tile"),),
        "a kernel stores to memory outside every shard, 16 bytes at once",
    ),
    "writes into an input": (
        (("tl.store(target", "tl.store(source, tl.load(source))\n    tl.store(target"),),
        "a kernel stores into the input shard of device 0",
    ),
    "changes an input": (
        (("return outputs", "shards[0].zero_()\n    return outputs"),),
        "device 0: its input shard was changed",
    ),
    "returns its input": (
        (("return outputs", "return shards"),),
        "the result of device 0 shares memory with the input of device 0",
    ),
    "two results share memory": (
        (("return outputs", "return [outputs[0], outputs[0]]"),),
        "the result of device 1 shares memory with the result of device 0",
    ),
    "a wrong dtype": (
        (("return outputs", "return [out.double() for out in outputs]"),),
        "device 0: dtype of the result: got: 'torch.float64', expected: 'torch.float32'",
    ),
    "a wrong shape": (
        (("return outputs", "return [out.reshape(2, 5) for out in outputs]"),),
        r"device 0: shape of the result: got: \(2, 5\), expected: \(5, 2\)",
    ),
    "a result too few": (
        (("return outputs", "return outputs[:1]"),),
        "results: got: 1, expected: 2",
    ),
    "dies": (
        (("return outputs", "__import__('os').abort()"),),
        "the process that ran it ended with SIGABRT",
    ),
    "a receiver that its sender does not know": (
        (("for r in range(2)", "for r in range(1)"),),
        r"only the receivers list \([01], 1, .*\)",
    ),
    "pieces that leave a gap, as both ends know them": (
        (("*source_box(s)[:2]", "s * 3, s * 3 + 1"), ("(low, high, *", "(low, low + 1, *")),
        "device 0: the tiles sent to it do not fill its shard exactly once",
    ),
    "another kernel than the one that is followed": (
        (("pull, Tiles()", "copy_rows, Tiles()"),),
        r"device 0: the kernel cannot be followed: copy_rows\(\) missing .*",
    ),
    "a kernel that is not said to be launched as it is": (
        (("number, largest", "number, most"),),
        "the module has no largest",
    ),
    "a host without tiles": (
        (("exchange, kernel, tiles =", "exchange, kernel, rows ="),),
        "the module has no tiles",
    ),
    "right after that": ((), RIGHT),
}

PALLAS: Faults = {
    "right": ((), RIGHT),
    "start off by one": (
        (("pl.ds(column, 2)", "pl.ds(1 - column // 2, 2)"),),
        r"device 0: 10 of 10 elements are wrong; element \[0, 0\]: "
        r"got: t\[0, 1\], expected: t\[0, 0\]",
    ),
    "tile left out": (
        (("    for peer in range(2)", "    for peer in range(1)"),),
        r"a wait that never ends: core 0 waits for \d+ of semaphore \d+, which stands at \d+ "
        r"\(cores that wait: 2\)",
    ),
    "tile left out, and nobody waits for it": (
        (
            ("    for peer in range(2)", "    for peer in range(1)"),
            ("x.at[pl.ds(0, rows), pl.ds(0, 4)]", "x.at[pl.ds(0, rows), pl.ds(0, 2)]"),
            (
                "pltpu.make_async_copy(received, received, receive).wait()",
                "pl.when(me == 0)(pltpu.make_async_copy(received, received, receive).wait)",
            ),
        ),
        r"device 1: 10 of 10 elements are wrong; element \[0, 0\]: "
        r"got: bits 0x7fc00000, expected: t\[0, 2\]",
    ),
    "tile left out, which the first poison does not show": (
        (
            ("    for peer in range(2)", "    for peer in range(1)"),
            ("x.at[pl.ds(0, rows), pl.ds(0, 4)]", "x.at[pl.ds(0, rows), pl.ds(0, 2)]"),
            (
                "pltpu.make_async_copy(received, received, receive).wait()",
                "pl.when(me == 0)(pltpu.make_async_copy(received, received, receive).wait)",
            ),
            (
                "return exchange(x)",
                "y = exchange(x)\n    return jnp.where(jnp.isnan(y), x[:5], y)",
            ),
        ),
        r"device 1: 10 of 10 elements are wrong; element \[0, 0\]: "
        r"got: bits 0x00000000, expected: t\[0, 2\]",
    ),
    "tiles overlap": (
        (("y.at[pl.ds(row, rows)", "y.at[pl.ds(0, rows)"),),
        r"race: write of \('hbm'.*\)\] against write of \('hbm'.*\)\]",
    ),
    "a receive wait left out": (
        (("make_async_copy(received, received, receive).wait()", "make_async_copy"),),
        r"device 0: 10 of 10 elements are wrong; element \[0, 0\]: "
        r"got: bits 0x7fc00000, expected: t\[0, 0\]",
    ),
    "a send wait left out": (
        (("make_async_copy(sent, sent, send).wait()", "make_async_copy"),),
        r"Semaphore \d+ has non-zero count for \d \(global core \d\) at kernel exit: \d+",
    ),
    "too small a wait": (
        (("received = y.at[pl.ds(0, 5)", "received = y.at[pl.ds(0, 4)"),),
        r"Semaphore \d+ has non-zero count for \d \(global core \d\) at kernel exit: 8",
    ),
    "too large a wait": (
        (("sent = x.at[pl.ds(0, rows)", "sent = x.at[pl.ds(0, 3)"),),
        r"a wait that never ends: core 1 waits for 48 of semaphore \d+, which stands at 32 "
        r"\(cores that wait: 1\)",
    ),
    "right after that": ((), RIGHT),
    "writes past a shard": (
        (("pl.ds(row, rows)", "pl.ds(row + 1, rows)"),),
        r"IndexError: .*|ValueError: Out-of-bounds write .*",
    ),
    "a wrong sharding": (
        (('out_specs=P(None, "x")', 'out_specs=P("x", None)'),),
        r"device 0: shape of the result: got: \(10, 1\), expected: \(5, 2\)",
    ),
    "pad on the wrong side": (
        (("((0, 1), (0, 0))", "((1, 0), (0, 0))"),),
        r"pad\(x\): (19|20) of 20 elements are wrong; element \[0, 0\]: "
        r"got: bits 0x00000000, expected: t\[0, 0\]",
    ),
    "a kernel of another name": (
        (("kernel=_kernel", "kern=_kernel"),),
        "the module has no kernel",
    ),
    "no form": (
        (('form="direct", ', ""),),
        "the module has no form",
    ),
    "an unknown form": (
        (('form="direct"', 'form="other"'),),
        "form: got: 'other', expected: one of direct, slots, windows, routed, spread, gathered, "
        "relayed, ring",
    ),
    "a form whose names it has not": (
        (('form="direct"', 'form="slots"'),),
        "the module has no outgoing",
    ),
    "another kernel than the one that is checked": (
        (("kernel=_kernel", "kernel=lambda x, y: None"),),
        "the kernel's events bring device 0 0 elements, expected: at least the 4 that it lacks",
    ),
    "a kernel that cannot be read": (
        (("    row, row_end, _, _ =", "    pltpu.sync_copy\n    row, row_end, _, _ ="),),
        "the kernel's events cannot be read: .* has no attribute 'sync_copy'",
    ),
    "a division that is not checked": (
        (("def source_box", "def halved(n):\n    return lax.div(n, 2)\n\n\ndef source_box"),),
        r"halved calls lax\.div, but dividends are checked only in the support function div",
    ),
    "unpad that drops a row": (
        (("    return y\n", "    return y[:4]\n"),),
        r"unpad\(y\): shape of the result: got: \(4, 4\), expected: \(5, 4\)",
    ),
}


def case(backend: str, name: str, edits: tuple[tuple[str, str], ...], folder: Path) -> Case:
    """The case of a hand-written module with words of it changed."""
    text = (MINI / f"{backend}.py").read_text()
    for words, instead in edits:
        assert words in text, f"{name}: the module does not say {words!r}"
        text = text.replace(words, instead, 1 if words == '"""' else -1)
    module = folder / f"{re.sub(r'[^a-z_]', '_', name)}.py"
    module.write_text(text)
    return Case(
        name=name,
        backend=backend,
        module=module,
        shape=(5, 4),
        dtype="float32",
        source=Placement((("x", 2),), (0, 1), ((X,), ())),
        target=Placement((("x", 2),), (0, 1), ((), (X,))),
        texts=(("SOURCE", '[{"x"}, {}]'), ("TARGET_MESH", '<["x"=2]>')),
    )


def expect_verdicts(backend: str, faults: Faults, folder: Path) -> None:
    """Every fault is found, and what is right passes."""
    cases = [case(backend, name, edits, folder) for name, (edits, _) in faults.items()]
    seen: list[Report | None] = []
    reports = run_batch(backend, cases, progress=lambda done, total, report: seen.append(report))
    wrong = [
        (report.name, report.verdict, report.detail)
        for report, (_, detail) in zip(reports, faults.values(), strict=True)
        if report.verdict != ("failed" if detail else "ok")
        or not re.fullmatch(detail, report.detail)
    ]
    assert wrong == []
    assert seen == list(reports)
    assert all(report.devices == 2 for report in reports)


def test_faults_of_a_triton_module(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    expect_verdicts("triton_gpu", TRITON | BOTH, tmp_path)


@pytest.mark.slow
def test_faults_of_a_pallas_module(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    expect_verdicts("pallas_tpu", PALLAS | BOTH, tmp_path)


def test_a_module_that_hangs_is_given_up(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    edits = (("    return outputs", '    while True:\n        __import__("time").sleep(1)'),)
    cases = [
        case("triton_gpu", "hangs", edits, tmp_path),
        case("triton_gpu", "right", (), tmp_path),
    ]
    hung, right = run_batch("triton_gpu", cases, time_limit=5)
    assert hung.verdict == "failed"
    assert hung.detail == "no result after 5 s: it hangs, or is too large to run here"
    assert right.verdict == "ok"


@pytest.mark.parametrize(
    ("backend", "detail"),
    [
        (
            "pallas_tpu",
            "jax is not installed: pip install -e '.[tpu]' in the checkout of shardwright",
        ),
        (
            "triton_gpu",
            "triton, torch are not installed: "
            "pip install -e '.[gpu]' in the checkout of shardwright",
        ),
    ],
)
def test_what_is_not_installed_is_named(
    backend: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "find_spec", lambda name: None)
    (report,) = run_batch(backend, [case(backend, "right", (), tmp_path)])
    assert (report.verdict, report.detail) == ("skipped", detail)
