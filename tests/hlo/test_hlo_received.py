"""What is read from the HLO of compiled programs: VMEM of kernels, and bytes that travel."""

from __future__ import annotations

import pytest

from shardwright.codegen.spec.hlo import collectives as hlo

KERNEL = """
  %shard_map.30 = s32[2,8,128]{2,1,0:T(8,128)} custom-call(%pad), \
custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"mesh_axes":"[\\"x\\"]"
}}, backend_config={"scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"900"}],\
"custom_call_config":{"body":"TUzv"},"used_scoped_memory_configs":[SPACES],"retry_config":{}}
  %fusion = s32[6]{0} fusion(%a), backend_config={"used_scoped_memory_configs":\
[{"memory_space":"1","offset":"0","size":"16187392"}]}
"""


@pytest.mark.parametrize(
    ("spaces", "taken"),
    [
        (('{"memory_space":"1","offset":"0","size":"4194304"}',), 4194304),
        (('{"memory_space":"0","offset":"0","size":"7"}',), 0),
        (("",), 0),
        (
            (
                '{"memory_space":"1","offset":"0","size":"512"}',
                '{"memory_space":"1","offset":"0","size":"4096"}',
            ),
            4096,
        ),
        ((), None),
    ],
)
def test_vmem_is_that_of_the_largest_kernel(spaces: tuple[str, ...], taken: int | None) -> None:
    text = "".join(KERNEL.replace("SPACES", space) for space in spaces)
    assert hlo.vmem_bytes(text) == taken


def line(shape: str, operation: str, attributes: str = "", name: str = "c") -> str:
    return f"  ROOT %{name} = {shape} {operation}(%x), channel_id=1, {attributes}, metadata={{}}\n"


MATRIX = 2 * 256 * 256 * 4
TILED = "f32[2,256,256]{2,1,0:T(8,128)S(1)}"
FOUR = "replica_groups={{0,1,2,3},{4,5,6,7}}"


@pytest.mark.parametrize(
    ("text", "received"),
    [
        ("", 0),
        (line(TILED, "add"), 0),
        (line(TILED, "all-to-all", "replica_groups=[4,2]<=[8], dimensions={0}"), MATRIX // 2),
        (line(TILED, "all-gather", f"{FOUR}, dimensions={{0}}"), MATRIX * 3 // 4),
        (line(TILED, "all-gather", "replica_groups={}"), MATRIX * 7 // 8),
        (line(TILED, "all-reduce", FOUR), MATRIX * 3 // 2),
        (line(TILED, "reduce-scatter", FOUR), MATRIX * 3),
        (line(f"({TILED}, {TILED})", "all-to-all", FOUR), MATRIX * 3 // 2),
    ],
)
def test_bytes_of_collectives(text: str, received: int) -> None:
    assert hlo.received_bytes(text, 8) == received


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", 4),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}", 8),
        ("mesh['axis_0'=4,'axis_1'=2], device_ids=([2,2,2]T(0,2,1)) {'axis_0':(2)2}", 2),
        ("[2,4]<=[4,2]T(1,0)", 4),
    ],
)
def test_notations_of_groups(groups: str, size: int) -> None:
    text = line(TILED, "all-gather", f"replica_groups={groups}, dimensions={{0}}")
    assert hlo.received_bytes(text, 8) == MATRIX * (size - 1) // size


def test_a_permutation_counts_for_who_receives_from_another() -> None:
    start = line(
        f"({TILED}, {TILED}, u32[]{{:S(2)}}, u32[]{{:S(2)}})",
        "collective-permute-start",
        "source_target_pairs={{0,0},{1,2}}",
        name="start",
    )
    done = f"  %done = {TILED} collective-permute-done(%start), metadata={{}}\n"
    assert hlo.received_bytes(start + done, 4) == MATRIX
    assert hlo.received_bytes((start + done).replace("{1,2}", "{1,1}"), 4) == 0


def test_collectives_of_one_channel_count_each() -> None:
    """As JAX emits those of a shard_map, alike or not."""
    text = line(TILED, "all-gather", FOUR, "a") + line(TILED, "all-gather", FOUR, "b")
    assert hlo.received_bytes(text, 8) == 2 * MATRIX * 3 // 4
    pairs = "replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0}"
    half = TILED.replace("256,256]", "128,256]")
    text = line(half, "all-gather", pairs, "a") + line(TILED, "all-gather", pairs, "b")
    assert hlo.received_bytes(text, 8) == MATRIX // 4 + MATRIX // 2


def test_permutes_of_one_channel_count_each() -> None:
    pairs = "source_target_pairs={{0,1},{1,0}}"
    text = line(TILED, "collective-permute", pairs, "a")
    text += line(TILED, "collective-permute", pairs, "b")
    assert hlo.received_bytes(text, 2) == 2 * MATRIX


@pytest.mark.parametrize(
    ("array", "size"),
    [
        ("s8[126,1007]{0,1:T(8,128)(4,1)}", 1008 * 128),
        ("bf16[100,3]{1,0:T(4,128)(2,1)S(1)}", 100 * 128 * 2),
        ("pred[5]{0:T(1024)}", 1024),
        ("u32[1000]{0}", 4000),
        ("f8e4m3fn[16,128]{1,0:T(8,128)(4,1)}", 16 * 128),
        ("f32[]", 4),
    ],
)
def test_arrays_are_as_large_as_in_memory(array: str, size: int) -> None:
    assert (
        hlo.received_bytes(line(array, "all-gather", "replica_groups=[4,2]<=[8]"), 8) == size // 2
    )
