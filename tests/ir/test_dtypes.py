"""Element types by their names, short names, and as dtypes of numpy, jax and torch."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import exactly, message

from shardwright.ir import DTYPES
from shardwright.ir.dtypes import PACKED, SHORT, SIZES, dtype_of

SAFETENSORS = {
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
}
"""What https://github.com/huggingface/safetensors calls them."""

KNOWN = ", ".join(DTYPES)


@pytest.mark.parametrize("name", DTYPES)
def test_a_name(name: str) -> None:
    assert dtype_of(name) == dtype_of(f" {name} ") == dtype_of(f"jnp.{name}") == name


def test_short_names_are_of_bits() -> None:
    for short, name in SHORT.items():
        if name in PACKED:
            continue
        bits = "".join(c for c in short.partition("_")[0].partition("e")[0] if c.isdigit())
        assert SIZES[dtype_of(short, SIZES)] == max(1, int(bits) // 8 if bits else SIZES[name])


@pytest.mark.parametrize("name", SAFETENSORS)
def test_names_of_safetensors(name: str) -> None:
    assert dtype_of(name) == SAFETENSORS[name]


@pytest.mark.parametrize(
    "name", [name for name in DTYPES if "bfloat" not in name and "8_" not in name]
)
def test_dtypes_of_numpy(name: str) -> None:
    kind = np.dtype(name)
    assert dtype_of(kind) == dtype_of(kind.type) == name


def test_a_type_of_python() -> None:
    assert dtype_of(bool) == "bool"


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_of_jax(name: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    kind = getattr(jnp, name)
    assert dtype_of(kind) == dtype_of(jnp.dtype(kind)) == dtype_of(jnp.dtype(kind).type) == name


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name)
    assert dtype_of(kind) == dtype_of(str(kind)) == name
    assert dtype_of(torch.half) == "float16"


UNKNOWN = {
    "float23": ("float23", "; did you mean float32?"),
    "flaot32": ("flaot32", "; did you mean float32?"),
    "int4": ("int4", "; did you mean int64?"),
    "f4, which numpy counts in bytes": ("f4", ""),
    "": ("", ""),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_name(case: str) -> None:
    given, hint = UNKNOWN[case]
    assert message(lambda: dtype_of(given)) == exactly(
        f"""
        dtype: unknown element type{hint}
        got: {given or "''"}
        expected: one of {KNOWN}
        """
    )


@pytest.mark.parametrize(
    "given",
    [None, 4, np.dtype(">f4"), np.floating, np.dtype("complex64"), np.zeros(3), object(), str],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_dtype(given: object) -> None:
    rule, got, expected = message(lambda: dtype_of(given)).splitlines()
    assert rule.startswith("dtype: unknown element type")
    assert got == f"got: {' '.join(repr(given).split())}"
    assert expected == f"expected: one of {KNOWN}"


@pytest.mark.parametrize("given", [float, "float", "torch.float"])
def test_a_name_without_a_width(given: object) -> None:
    assert message(lambda: dtype_of(given)) == exactly(
        """
        dtype: the element type must state its width: numpy, jax and torch differ on the default
        got: float
        expected: one of float32, float64
        """
    )
