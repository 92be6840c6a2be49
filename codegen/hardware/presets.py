"""Read topologies from a string or a TOML file. `str` of a topology returns such a string.

    v5e:4x4  v5p:4x4x8  …             a slice of TPU chips; v4 and tpu7x have two devices per chip
    h100  h200                        eight GPUs on NVSwitch; h100:4x8 is four such hosts
    cpu:8                             eight devices that JAX makes of one host's CPU
    switch:8  torus:4x4  hierarchical:2x4   a kind of topology, with its sizes

`,key=value` after it changes a number of the topology. A TOML file has the key `topology`, with one
of these strings, and the numbers to change as additional keys.

Sources of the numbers. TPUs: see `chips.py`; about a microsecond per hop
(jax-ml.github.io/scaling-book/tpus, "ICI latency"). GPUs: see `nccl.py`; HBM of 3.35 and 4.8 TB/s
per GPU (nvidia.com/en-us/data-center/h100 and /h200). `switch` and `hierarchical`: 900 GB/s per GPU
in both directions together (the same pages); eight ConnectX-7 adapters of 400 Gb/s per host
(NVIDIA's DGX H100 data sheet); one microsecond per message, five between hosts. These numbers are
defaults: state your own if you know them, or run `shardwright measure`. `cpu`: the devices share
the CPU; their rates are those measured by `bench/matmul_time.py`, rounded: 8 GB/s in a collective
along the first dimension of an array, where parts are contiguous.

`ragged`: see TPU_RAGGED; `h100,ragged=0` has no ragged all-to-all. On the GPUs of one host, the
ragged all-to-all of XLA was reported at 2% of NVLink's bandwidth (openxla/xla #33386, B200), and
between hosts near the network's bandwidth.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from shardwright.codegen.hardware import nccl
from shardwright.codegen.hardware.chips import CHIPS, slice_of
from shardwright.codegen.hardware.topology import Hierarchical, Switch, Topology, Torus
from shardwright.ir.errors import InputError, one_of, suggested

NVLINK_BANDWIDTH = 900e9 / 2
NVLINK_LATENCY = 1e-6
NETWORK_BANDWIDTH = 8 * 400e9 / 8  # the eight adapters of a host, one way
NETWORK_LATENCY = 5e-6
ICI_LATENCY = 1e-6
GPUS = 8  # the number of GPUs of a host
GPU_KERNEL = 2e-6  # bench/gpu_check.md: 12.8 us for the six kernels of `transpose_2x3`, in a graph
CPU_BANDWIDTH = 8e9
CPU_LATENCY = 3e-5
CPU_COPIES = 5e9  # the bytes per second that a transpose copies
# The rows of a ragged all-to-all are padded to multiples of this many bytes. libtpu 0.0.42 pads to
# tiles of 128 words for every generation; XLA on GPUs does not pad.
TPU_RAGGED = 512
GPU_RAGGED = 1

_CHIPS = {chip.generation: chip for chip in CHIPS}
_GPUS = {"h100": 3.35e12, "h200": 4.8e12}  # the bytes per second of HBM
_KINDS = ("switch", "torus", "hierarchical")
_DEVICE = ("ragged", "memory", "launch", "kernel", "collective", "multiplies", "device")
_FIGURES = {
    "switch": ("bandwidth", "latency", *_DEVICE),
    "torus": ("wrap", "bandwidth", "latency", "powers_of_two", "core_bandwidth", *_DEVICE),
    "hierarchical": (
        *("bandwidth", "latency", "between_bandwidth", "between_latency"),
        *_DEVICE,
    ),
}
_CPU = "cpu"
_DEVICES = (*_CHIPS, *_GPUS, _CPU)
NAMES = (*_KINDS, *_DEVICES)

_UNITS = {
    **dict.fromkeys(("launch", "kernel", "collective"), "seconds"),
    "multiplies": "multiplications and additions a second",
}

# The maximum number of devices of a plan. Device ids must also be smaller than this number, because
# prices use tables indexed by id.
MOST_DEVICES = 1 << 20


def topology_of(text: str) -> Topology:
    """Parse a topology, or read a TOML file if the text ends in `.toml`. Raise
    InputError for anything else."""
    if text.endswith(".toml"):
        return _from_file(Path(text))
    head, *pairs = text.split(",")
    figures: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            _wrong("numbers must be key=value, joined by commas", pair, "key=value")
        figures[key.strip()] = value.strip()
    return _described(head.strip(), figures)


def name_of(topology: Topology) -> str:
    """Return a short name of a topology: the preset that equals it, such as `v5e:4x4`, or else
    its kind and sizes."""
    said = str(topology).partition(",")[0]
    match topology:
        case Torus(dims=dims, core_bandwidth=cores):
            sizes = "x".join(map(str, dims[1:] if cores else dims))
            names = [f"{chip.generation}:{sizes}" for chip in CHIPS]
        case Switch(size=size):
            names = [name if size == GPUS else f"{name}:{size}" for name in _GPUS]
            names.append(f"{_CPU}:{size}")
        case _:
            names = [f"{name}:{topology.hosts}x{topology.host_size}" for name in _GPUS]
    return next((name for name in names if _is_named(name, topology)), said)


def idle_text(topology: Topology, used: int) -> str:
    """Return a clause to append to the name of a topology if a plan uses only `used` of its
    devices; "" if it uses all of them."""
    size = topology.size
    return "" if size is None or used >= size else f", {used} of whose {size} devices take part"


def file_text(topology: Topology) -> str:
    """Return the text of a TOML file that describes a topology."""
    head, *figures = str(topology).split(",")
    lines = [f'topology = "{head}"']
    for name, _, value in (figure.partition("=") for figure in figures):
        quoted = name in ("wrap", "powers_of_two", "device")
        lines.append(f'{name} = "{value}"' if quoted else f"{name} = {value}")
    return "\n".join((*lines, ""))


def device_of(topology: Topology) -> str:
    """Return the name of the preset for the devices of a topology, such as `v5e`, or "" if there is
    none."""
    name = topology.device or name_of(topology).partition(":")[0]
    return name if name in _DEVICES else ""


def is_processor(topology: Topology) -> bool:
    """Return whether the devices of a topology share one CPU, and so wait for each other."""
    return device_of(topology) == _CPU


def is_gpus(topology: Topology) -> bool:
    """Return whether the devices of a topology are GPUs of a preset."""
    return device_of(topology) in _GPUS


def _is_named(name: str, topology: Topology) -> bool:
    try:
        return topology_of(name) == topology
    except InputError:
        return False


def _from_file(path: Path) -> Topology:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        _wrong(f"cannot be read: {error.strerror}", str(path), "a TOML file")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        _wrong(f"not TOML: {error}", str(path), "a TOML file")
    head = table.pop("topology", None)
    if not isinstance(head, str):
        _wrong(
            "a topology file must name its topology",
            str(path),
            'a line such as topology = "torus:4x4"',
        )
    return _described(head, table)


def _described(head: str, figures: Mapping[str, object]) -> Topology:
    name, _, sizes = head.partition(":")
    dims = _sizes(sizes) if sizes else ()
    if name in _CHIPS:
        base: Topology = _slice(name, dims)
    elif name in _GPUS:
        base = _hosts(name, dims)
    elif name == _CPU:
        base = _processor(dims)
    elif name in _KINDS:
        base = _GENERIC[name](dims)
    else:
        rule = "no such topology" + suggested(name, NAMES)
        _wrong(rule, head, one_of(NAMES) + ", or a file that ends in .toml")
    if figures and name in _DEVICES:
        base = replace(base, device=name)
    return _with(base, figures)


def _slice(name: str, dims: tuple[int, ...]) -> Torus:
    """Return a slice of TPU chips. If a device is a core, the cores of a chip form the first
    axis."""
    chip = _CHIPS[name]
    axes = len(chip.layouts[0].split("x"))
    if len(dims) != axes:
        _wrong(f"a slice of {name} must have {axes} sizes", _said(name, dims), f"{name}:" +
               "x".join("4" * axes))  # fmt: skip
    cores = (chip.devices,) if chip.core_bandwidth else ()
    wrap = (*[False for _ in cores], *slice_of(dims).wraps)
    figures = (chip.link_bandwidth, ICI_LATENCY, chip.power_of_two_offsets, TPU_RAGGED)
    return Torus((*cores, *dims), wrap, *figures, chip.core_bandwidth, chip.hbm_bandwidth)


def _hosts(name: str, dims: tuple[int, ...]) -> Topology:
    dims = dims or (GPUS,)
    if len(dims) > 2 or dims[-1] > GPUS:
        _wrong(f"a host of {name} has at most {GPUS} GPUs", _said(name, dims), f"{name}:4x{GPUS}")
    own = {
        "ragged": GPU_RAGGED,
        "memory": _GPUS[name],
        "kernel": GPU_KERNEL,
        "collective": nccl.COLLECTIVE,
    }
    within = nccl.BANDWIDTH, nccl.LATENCY
    if len(dims) == 1:
        return with_figures(Switch(*dims, *within), own)
    between = nccl.BETWEEN_BANDWIDTH, nccl.BETWEEN_LATENCY
    return with_figures(Hierarchical(dims[0], dims[1], *within, *between), own)


def _processor(dims: tuple[int, ...]) -> Switch:
    if len(dims) != 1:
        _wrong("a processor must have one size", _said(_CPU, dims), f"{_CPU}:8")
    return Switch(dims[0], CPU_BANDWIDTH, CPU_LATENCY)


def _switch(dims: tuple[int, ...]) -> Switch:
    if len(dims) > 1:
        _wrong("a switch must have one size", _said("switch", dims), "switch:8")
    return Switch(dims[0] if dims else None, NVLINK_BANDWIDTH, NVLINK_LATENCY)


def _torus(dims: tuple[int, ...]) -> Torus:
    if not 1 <= len(dims) <= 4:
        _wrong("a torus must have one to four sizes", _said("torus", dims), "torus:4x4")
    chip = _CHIPS["v5p"]
    return Torus(dims, tuple(size > 2 for size in dims), chip.link_bandwidth, ICI_LATENCY)


def _hierarchical(dims: tuple[int, ...]) -> Hierarchical:
    if len(dims) != 2:
        _wrong(
            "a hierarchical topology must have two sizes, hosts x devices per host",
            _said("hierarchical", dims),
            "hierarchical:4x8",
        )
    figures = (NVLINK_BANDWIDTH, NVLINK_LATENCY, NETWORK_BANDWIDTH, NETWORK_LATENCY)
    return Hierarchical(*dims, *figures)


_GENERIC: dict[str, Callable[[tuple[int, ...]], Topology]] = {
    "switch": _switch,
    "torus": _torus,
    "hierarchical": _hierarchical,
}


def _with(base: Topology, figures: Mapping[str, object]) -> Topology:
    kind = type(base).__name__.lower()
    for key in figures:
        if key not in _FIGURES[kind]:
            rule = f"a {kind} topology has no such key" + suggested(key, _FIGURES[kind])
            _wrong(rule, key, one_of(_FIGURES[kind]))
    values: dict[str, object] = {}
    for key, value in figures.items():
        if key == "wrap":
            values[key] = _flags(value, len(base.dims) if isinstance(base, Torus) else 0)
        elif key == "powers_of_two":
            values[key] = _flags(value, 1)[0]
        elif key == "ragged":
            values[key] = _count(key, value)
        elif key == "device":
            values[key] = _device(value)
        else:
            values[key] = _positive(key, value)
    return with_figures(base, values)


def with_figures(topology: Topology, figures: Mapping[str, object]) -> Topology:
    """Return a topology with some fields replaced. The values are not checked."""
    values: dict[str, Any] = {**vars(topology), **figures}
    return type(topology)(**values)


def _flags(value: object, count: int) -> tuple[bool, ...]:
    """Return one boolean per axis, given as `1x0` or as a list. Raise InputError for anything
    else."""
    if isinstance(value, bool):
        value = [value]
    if isinstance(value, list) and all(isinstance(flag, bool) for flag in value):
        found = tuple(value)
    elif isinstance(value, str) and set(value.split("x")) <= {"0", "1"}:
        found = tuple(flag == "1" for flag in value.split("x"))
    else:
        found = ()
    if len(found) != count:
        _wrong("wrap must be 0 or 1 for each axis", value, "x".join("1" * count))
    return found


def _count(key: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or len(text) > 9:
        _wrong(
            f"{key} must be a number of bytes, or 0 if there is no such collective", value, "512"
        )
    return int(text)


def _device(value: object) -> str:
    if value not in _DEVICES:
        _wrong("no such device", value, one_of(_DEVICES))
    return str(value)


def _positive(key: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not 0 < number < float("inf"):
        unit = _UNITS.get(key, "seconds" if key.endswith("latency") else "bytes per second")
        _wrong(f"{key} must be a number of {unit}", value, "a number above 0, for example 4.5e10")
    return number


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(part.isdecimal() and len(part) <= 9 and int(part) > 0 for part in parts):
        _wrong("the sizes of a topology must be integers of at least 1, joined by x", text, "4x4")
    sizes = tuple(map(int, parts))
    if math.prod(sizes) > MOST_DEVICES:
        _wrong("the topology is too large", text, f"at most {MOST_DEVICES} devices")
    return sizes


def _said(name: str, dims: tuple[int, ...]) -> str:
    return f"{name}:{'x'.join(map(str, dims))}" if dims else name


def _wrong(rule: str, got: object, expected: str) -> NoReturn:
    raise InputError(rule, argument="topology", got=got, expected=expected)


def check_devices(topology: Topology, devices: int) -> None:
    """Raise InputError unless the topology has devices 0 to `devices` - 1, and these are few enough
    for a plan."""
    if devices > MOST_DEVICES:
        raise InputError(
            "device ids are too large: pricing a plan needs a table up to the largest id",
            got=f"device {devices - 1}",
            expected=f"ids below {MOST_DEVICES}",
        )
    if topology.size is not None and devices > topology.size:
        raise InputError(
            "the topology must have every device of the meshes",
            argument="topology",
            got=f"{name_of(topology)}: devices 0 to {topology.size - 1}",
            expected=f"a topology of at least {devices} devices, for device {devices - 1}",
        )
