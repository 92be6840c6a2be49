"""The Triton kernels of every form: against the oracle, unaligned, compiled, one launch each."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cases import describe, random_reshard
from every_feature import EVERY
from gloo_group import printed
from gpu_cases import CASES, FORMS, make, moves
from running import reports_of
from style import FORMATTED, LINTED
from sweeps import sampled

from shardwright.codegen.backends.triton_gpu.kernel import Kernel
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.operations.verify import Case
from shardwright.ir import Mesh, Reshard

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


def written(reshard: Reshard, folder: Path, name: str = "case") -> Path:
    """The module of a reshard, on disk."""
    path = folder / f"{name}.py"
    path.write_text(
        parts(plan(reshard), "triton_gpu", "shardwright emit", single_file=True)[0].text
    )
    return path


def loaded(path: Path) -> ModuleType:
    """A module, imported."""
    return load(path)


@pytest.mark.parametrize("name", sampled(CASES, "tail", "bytes"))
def test_every_form_against_the_oracle(name: str, tmp_path: Path) -> None:
    """One of each form in every run; what all of them copy is followed in `test_gpu_copies`."""
    case = Case.of(CASES[name], name, "triton_gpu", written(CASES[name], tmp_path))
    (report,) = reports_of("triton_gpu", [case])
    assert (report.verdict, report.detail) == ("ok", "")


def test_modules_are_formatted(tmp_path: Path) -> None:
    """Every form, and one whose index functions have sums longer than a line."""
    for name, reshard in {**CASES, "long": random_reshard(86)}.items():
        written(reshard, tmp_path, name)
    ruff_finds_nothing(tmp_path)


def ruff_finds_nothing(folder: Path) -> None:
    for words in (FORMATTED, LINTED):
        command = [sys.executable, "-m", *words, str(folder)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]


# Shards so many bytes past a multiple of 16, then results there: narrower units, without hints.
SHIFTED = """
import itertools, math, sys
from pathlib import Path
import torch
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks.load import load

def shifted(shape, dtype):
    memory = torch.empty(math.prod(shape) + 32, dtype=dtype)
    start = next(k for k in range(32) if memory[k:].data_ptr() % 16 == nbytes)
    return memory[start : start + math.prod(shape)].view(shape)

for path in sys.argv[1:]:
    m = load(Path(path))
    own, launches, units = m._HOST, [], []
    puller = own.here.puller
    own.here.puller = lambda *given: (launches.append(given), puller(*given))[1]
    view = own.units
    own.units = lambda out, block: (units.append(block.width), view(out, block))[1]
    sources, targets = sorted(m.SOURCE_IDS), sorted(m.TARGET_IDS)
    shifts = sorted({own.itemsize, 8})
    for nbytes, (move_inputs, move_outputs) in itertools.product(
        shifts, ((True, False), (False, True))
    ):
        shards = []
        for device in sources:
            held = torch.randint(0, 2, m.source_shape(device)).to(own.dtype)
            here = shifted(held.shape, held.dtype) if move_inputs else torch.empty_like(held)
            shards.append(here.copy_(held))
        out = [torch.empty(m.target_shape(d), dtype=own.dtype) for d in targets]
        held = dict(zip(sources, shards))
        by_position = [held[each] for each in m.SOURCE_IDS]
        expected = []
        for device in targets:
            mine = torch.empty(m.target_shape(device), dtype=own.dtype)
            addresses = [[shard.data_ptr() for shard in by_position]]
            own.processes.listed_puller(addresses, [mine], device)([mine])
            expected.append(mine)
        if move_outputs:
            out = [shifted(o.shape, o.dtype) for o in out]
        launches.clear(), units.clear()
        with quick_launches():
            got = m.reshard_local(shards, out=out)
        assert all(a is b for a, b in zip(got, out))
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
        assert len(launches) == len(out)
        assert set(units) == {min(own.tiles.width, nbytes // own.itemsize)}
    addresses = shards[0].data_ptr(), out[0].data_ptr()
    print(own.tiles.block()[:2], len(shifts), all(address % 16 == 0 for address in addresses))
"""


@pytest.mark.slow
def test_shards_that_lie_anywhere(tmp_path: Path) -> None:
    """Inputs, results, or both begin off 16 bytes; one launch a device, into the tensors given."""
    names = ["heads", "rows", "bytes"]
    paths = [written(CASES[name], tmp_path, name) for name in names]
    said = printed(SHIFTED, list(map(str, paths)), tmp_path)
    assert said.splitlines() == [
        "(8, 2) 2 False",
        "(1, 4) 2 False",
        "(1, 1) 2 False",
    ]


def assembly(module: ModuleType, start: int | None = None, push: Any = None) -> str:
    """The kernel for sm_90, as the module launches it for shards that begin at multiples of so many
    elements, by default of 16 bytes; that of `push`, if it is given."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from shardwright.codegen.backends.triton_gpu.compile import launch

    made, own = module.pull_kernel, module._HOST
    given, tiles = launch.types(module), own.tiles
    if push is not None:
        made, tiles = push.kernel, tiles._replace(number=push.tiles)
        given |= {"shard": given["out"], "sender": "i32", "homes": "*i64"}
    names, block = made.arg_names, tiles.block(start)
    if start is not None:
        given["out"] = f"*i{8 * own.itemsize * block.width}"
    values = {"BLOCK": block}
    pointers = [k for k, name in enumerate(names) if given.get(name, "").startswith("*")]
    compiled = triton.compile(
        ASTSource(
            fn=made,
            signature={name: given.get(name, "constexpr") for name in names},
            constexprs={(names.index(name),): value for name, value in values.items()},
            attrs={(k,): [["tt.divisibility", 16]] for k in pointers} if start is None else {},
        ),
        target=GPUTarget("cuda", 90, 32),
    )
    text: str = compiled.asm["ptx"]
    return text


def widths(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes of the loads after that of the address, and of the stores."""
    from shardwright.codegen.backends.triton_gpu.compile import resources

    return resources.widths(text, "ld")[1:], resources.widths(text, "st")


@pytest.mark.parametrize("name", CASES)
def test_sixteen_bytes_where_they_are_proven(name: str, tmp_path: Path) -> None:
    """All loads and stores of `lines`, some of `mixed`, none of `units`; no loop, no division."""
    from shardwright.codegen.backends.triton_gpu.compile import resources

    module = loaded(written(CASES[name], tmp_path))
    text = assembly(module)
    for found in widths(text):
        wide = [size == 16 for size in found]
        assert {"lines": all(wide), "mixed": any(wide), "units": not any(wide)}[FORMS[name]], found
    assert resources.divisions(text)[0] == 0
    tiles = module._HOST.tiles
    for start in (start for start in (1, 2, 4) if start < tiles.width * tiles.lanes):
        unhinted = assembly(module, start)
        unit = module._HOST.itemsize * min(start, tiles.width)
        assert {size for found in widths(unhinted) for size in found} == {unit}


def test_offsets_of_large_shards_have_64_bits(tmp_path: Path) -> None:
    sides = '[{"x"}, {}]', '[{}, {"x"}]'
    texts = []
    for rows in (2**14, 2**17):
        large = make({"x": 2}, (rows, 2**16), *sides, dtype="int8")
        texts.append(written(large, tmp_path, f"rows{rows}").read_text())
        assert assembly(loaded(tmp_path / f"rows{rows}.py")).count(".v2.b64")
    kernels = [text.partition("def pull_kernel")[2] for text in texts]
    assert ["tl.cast(tl.program_id(0), tl.int64)" in kernel for kernel in kernels] == [False, True]


def test_peers_are_visited_from_beyond_the_own_shard_on(tmp_path: Path) -> None:
    """By each device in another order, the last tile of a launch being the device's own."""
    path = written(make({"x": 4}, (8, 64), '[{"x"}, {}]', '[{}, {"x"}]'), tmp_path)
    order = printed(ORDER, [str(path)], tmp_path)
    assert eval(order) == [[(d + k + 1) % 4 for k in range(4)] for d in range(4)]


def test_a_step_past_the_own_shard_only_where_that_makes_it_the_last() -> None:
    """And the comment says so then."""
    ends = []
    for reshard in [*CASES.values(), *map(random_reshard, range(30))]:
        exchange = moves(reshard).exchange
        kernel = Kernel(moves(reshard), some_local=True, wide=False)
        named = {
            each.name: " ".join(dim.comments) for dim in kernel.text.dims for each in dim.values
        }
        for axis, (dim, count) in enumerate(zip(exchange.dims, kernel.counts, strict=True)):
            if count == 1 or f"a{axis}" not in named:
                continue
            positions = np.arange(exchange.target.mesh.size)
            low, high = (end[dim.target.index(positions)] for end in dim.target.intervals)
            first = np.broadcast_to(dim.source.owner(low), positions.shape)
            own = exchange.source.dims[axis].index(positions) + 0 * positions
            last = "ends with its own" in named[f"a{axis}"]
            step = (own + count - 1 + last) % count
            met = (first <= own) & (own < first + count) & (low < high)
            if last:
                assert exchange.same_order
                assert ((first + step)[met] == own[met]).all(), describe(reshard)
            ends.append(last)
    assert {*ends} == {True, False}


ORDER = """
import sys
from pathlib import Path
import torch
from shardwright.codegen.checks.load import load

m = load(Path(sys.argv[1]))
seen = []
shards = [torch.empty(m.source_shape(d), dtype=torch.float32) for d in m.SOURCE_IDS]
starts = {shard.data_ptr(): d for d, shard in enumerate(shards)}
from triton.runtime import interpreter
builder = interpreter.interpreter_builder
original = builder.create_masked_load


def loaded(ptrs, mask, *rest):
    result = original(ptrs, mask, *rest)
    seen.extend(starts[int(v)] for v in result.data.ravel() if int(v) in starts)
    return result


builder.create_masked_load = loaded
orders = []
for device in range(4):
    seen.clear()
    out = torch.empty(m.target_shape(device), dtype=torch.float32)
    m._HOST.puller([[shard.data_ptr() for shard in shards]], [out], device)([out])
    orders.append(list(dict.fromkeys(seen)))
print(orders)
"""


def test_out(tmp_path: Path) -> None:
    """Results go where they are told, and nowhere else; CPU tensors outside the interpreter too."""
    module = loaded(written(CASES["columns"], tmp_path))
    shards = [torch.randn(module.source_shape(d)).to(torch.bfloat16) for d in range(8)]
    expected = module.reshard_local(shards)
    out = [torch.empty_like(each) for each in expected]
    assert all(a is b for a, b in zip(module.reshard_local(shards, out=out), out, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))


def refused(module: Any, shards: list[Any], out: list[Any] | None) -> str:
    with pytest.raises(ValueError, match=r"expected|shares|gradient") as caught:
        module.reshard_local(shards, out=out)
    return str(caught.value)


def test_what_reshard_local_refuses(tmp_path: Path) -> None:
    module = loaded(written(CASES["columns"], tmp_path))
    shards = [torch.zeros(16, 64, dtype=torch.bfloat16) for _ in range(8)]
    out = [torch.zeros(64, 32, dtype=torch.bfloat16) for _ in range(8)]

    def given(which: list[Any], number: int, tensor: Any) -> list[Any]:
        return [*which[:number], tensor, *which[number + 1 :]]

    said = [
        refused(module, shards[:7], None),
        refused(module, shards, out[:7]),
        refused(module, given(shards, 3, shards[3].T), None),
        refused(module, given(shards, 3, shards[3].float()), None),
        refused(module, given(shards, 3, torch.zeros(64, 16).bfloat16().T), None),
        refused(module, shards, given(out, 5, out[5][:, :16])),
        refused(module, shards, given(out, 5, torch.zeros(32, 64).bfloat16().T)),
        refused(module, shards, given(out, 5, out[5].to("meta"))),
        refused(module, given(shards, 1, shards[1].to("meta")), None),
    ]
    whole = torch.zeros(64 * 32, dtype=torch.bfloat16)
    shared = given(shards, 0, whole[: 16 * 64].view(16, 64))
    said.append(refused(module, shared, given(out, 5, whole.view(64, 32))))
    said.append(refused(module, shards, given(out, 5, out[2])))
    said.append(refused(module, given(shards, 3, None), None))
    said.append(refused(module, given(shards, 3, shards[3].float().numpy()), None))
    said.append(refused(module, given(shards, 3, torch._neg_view(shards[3])), None))
    said.append(refused(module, shards, given(out, 5, torch._neg_view(out[5]))))
    assert said == [
        "got 7 source shards, expected 8",
        "got 7 tensors in out, expected 8",
        "source shard of device 3, x[16:32, 0:64] of a whole x: got (64, 16) of torch.bfloat16, "
        "expected (16, 64) of torch.bfloat16",
        "source shard of device 3: got (16, 64) of torch.float32, "
        "expected (16, 64) of torch.bfloat16",
        "source shard of device 3: got a tensor that is not contiguous, expected its contiguous()",
        "out of device 5: got (64, 16) of torch.bfloat16, expected (64, 32) of torch.bfloat16",
        "out of device 5: got a tensor that is not contiguous, expected its contiguous()",
        "out of device 5: got a tensor on meta, expected one on cpu",
        "got source shards on ['cpu', 'meta'], expected all on GPUs or all on CPU",
        "out of device 5: shares memory with a source shard, which other devices read",
        "out of device 5: shares memory with another tensor of out",
        "source shard of device 3: got NoneType, expected a torch.Tensor",
        "source shard of device 3: got ndarray, expected a torch.Tensor",
        "source shard of device 3: got a lazily negated view, expected its resolve_neg()",
        "out of device 5: got a lazily negated view, expected its resolve_neg()",
    ]


def pair(folder: Path) -> ModuleType:
    """The module of a bundle with that of the reverse reshard beside it, between other meshes."""
    source, target = Mesh({"x": 4, "y": 2}), Mesh({"t": 3}, [5, 2, 9])
    sides = source.sharding('[{"x"}, {}]'), target.sharding('[{}, {"t"}]')
    bundle = emit(
        Reshard((7, 6), "float32", *sides), ("triton_gpu",), gradient=True, features=EVERY
    )
    bundle.write(folder / "there")
    return loaded(folder / "there" / "triton_gpu.py")


def test_the_gradient_is_the_reverse_reshard(tmp_path: Path) -> None:
    """Each element's gradient arrives where the element came from."""
    module = pair(tmp_path)
    shards = [torch.randn(module.source_shape(d), requires_grad=True) for d in range(8)]
    outputs = module.reshard_local(shards)
    weights = torch.arange(42.0).view(7, 6)
    columns = {device: number for number, device in enumerate((5, 2, 9))}
    sum(
        (out * weights[:, 2 * columns[d] : 2 * columns[d] + 2]).sum()
        for d, out in zip((2, 5, 9), outputs, strict=True)
    ).backward()
    rows = math.ceil(7 / 4)
    for device, shard in enumerate(shards):
        first = device // 2 * rows
        assert torch.equal(shard.grad, weights[first : first + rows])
    there = module._HOST.gradient.reverse._HOST.gradient.reverse
    assert (there.SOURCE, there.TARGET, there.PLAN) == (module.SOURCE, module.TARGET, module.PLAN)


def test_gradients_that_are_lazily_negated(tmp_path: Path) -> None:
    """As that of the imaginary part of a conjugate is: memory holds what is still to be negated."""
    module = pair(tmp_path)
    weights = [torch.randn(module.target_shape(d)) for d in (2, 5, 9)]
    found = []
    for given in (weights, [torch._neg_view(-each) for each in weights]):
        shards = [torch.randn(module.source_shape(d), requires_grad=True) for d in range(8)]
        torch.autograd.backward(module.reshard_local(shards), given)
        found.append([shard.grad for shard in shards])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_integers_have_no_gradient(tmp_path: Path) -> None:
    reshard = make({"x": 2}, (4,), '[{"x"}]', "[{}]", dtype="int32")
    bundle = emit(reshard, ("triton_gpu",), gradient=True, features=EVERY)
    bundle.write(tmp_path / "whole")
    assert not (tmp_path / "whole" / "triton_gpu_backward.py").exists()
    module = loaded(tmp_path / "whole" / "triton_gpu.py")
    assert module._HOST.gradient is None


def test_gradients_that_cannot_be(tmp_path: Path) -> None:
    part, _ = parts(plan(CASES["uneven"]), "triton_gpu", "", gradient=True, single_file=True)
    (tmp_path / "case.py").write_text(part.text)
    module = loaded(tmp_path / "case.py")
    shards = [torch.zeros(module.source_shape(d), requires_grad=True) for d in range(8)]
    out = [torch.zeros(module.target_shape(d)) for d in range(8)]
    message = "out does not support gradients: omit it, or detach the source shards"
    assert refused(module, shards, out) == message
    results = module.reshard_local(shards)
    with pytest.raises(RuntimeError) as caught:
        sum(result.sum() for result in results).backward()
    name = module.__name__.replace("case", "triton_gpu_backward")
    said = f"the gradient of this reshard is in {name}, which is missing"
    assert said in str(caught.value)
    with torch.no_grad():
        assert not any(result.requires_grad for result in module.reshard_local(shards))


def test_a_gradient_that_was_not_asked_for(tmp_path: Path) -> None:
    """It is an error, in one process and among many; nothing is detached in silence."""
    module = loaded(written(CASES["uneven"], tmp_path))
    shards = [torch.zeros(module.source_shape(d), requires_grad=True) for d in range(8)]
    said = (
        "a source shard requires a gradient, but this module has none: emit it with gradient=True "
        "(--gradient), or call it in torch.no_grad()"
    )
    assert refused(module, shards, None) == said
