"""Bundles by name: `load(name, backend)` imports the module of one."""

import importlib
import pathlib

# The folder of each reshard and group.
MODULES = {
    "all_reduce_8": "all_reduce_8",
    "all_to_all_3": "all_to_all_3",
    "all_to_all_v5e": "all_to_all_v5e",
    "attention_seq_to_heads": "attention_seq_to_heads",
    "axis_order_swap": "axis_order_swap",
    "cut_pattern_2x3": "cut_pattern_2x3",
    "gather_2x3": "gather_2x3",
    "gather_major_2x2x2": "gather_major_2x2x2",
    "gather_major_2x3": "gather_major_2x3",
    "gather_minor_2x3": "gather_minor_2x3",
    "gpt2_vocab_uneven": "gpt2_vocab_uneven",
    "gradient_2x4": "gradient_2x4",
    "kv_cache_tp4_to_tp2": "kv_cache_tp4_to_tp2",
    "llama3_70b_down_tp_to_fsdp": "llama3_70b_down_tp_to_fsdp",
    "llama3_70b_wq_fsdp_to_tp": "llama3_70b_wq_fsdp_to_tp",
    "llama3_embed_vocab_to_hidden": "llama3_embed_vocab_to_hidden",
    "matmul_batch_uneven": "matmul_batch_uneven",
    "matmul_book_4x2": "matmul_book_4x2",
    "matmul_gather_gpu": "matmul_gather_gpu",
    "matmul_gather_kernel": "matmul_gather_kernel",
    "matmul_gather_ring": "matmul_gather_ring",
    "matmul_scatter_gpu": "matmul_scatter_gpu",
    "matmul_scatter_kernel": "matmul_scatter_kernel",
    "matmul_scatter_ring": "matmul_scatter_ring",
    "moe_experts_ep_to_tp": "moe_experts_ep_to_tp",
    "move_four_axes": "move_four_axes",
    "move_major_2x2x2": "move_major_2x2x2",
    "packed_qkv": "packed_qkv",
    "reduce_scatter_2x4": "reduce_scatter_2x4",
    "reduce_scatter_ring": "reduce_scatter_ring",
    "reversed_devices": "reversed_devices",
    "slice_2x3": "slice_2x3",
    "steps_2x4": "steps_2x4",
    "sub_axes_after_reshape": "sub_axes_after_reshape",
    "swap_axes_2x3": "swap_axes_2x3",
    "torch_nested_2x2": "torch_nested_2x2",
    "trainer_to_server": "trainer_to_server",
    "transpose_2x3": "transpose_2x3",
    "transpose_2x6": "transpose_2x6",
    "transpose_3x4_uneven": "transpose_3x4_uneven",
    "transpose_5x2_uneven": "transpose_5x2_uneven",
    "uneven_both_sides": "uneven_both_sides",
    "xla_15207": "xla_15207",
    "zigzag_sequence": "zigzag_sequence",
}


def load(name, backend):
    """Import and return the module of a reshard or a group for a backend.

    Raises KeyError for a name that is not in `MODULES`, ImportError for a backend without a
    module.
    """
    if name not in MODULES:
        more = f", … ({len(MODULES)} in all)" if len(MODULES) > 40 else ""
        raise KeyError(f"unknown name {name!r}: expected one of {', '.join([*MODULES][:40])}{more}")
    folder = pathlib.Path(__file__).parent / MODULES[name]
    found = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    if backend not in found:
        raise ImportError(f"{name} has no module {backend}: expected one of {', '.join(found)}")
    return importlib.import_module(f".{MODULES[name]}.{backend}", __name__)
