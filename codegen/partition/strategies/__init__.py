"""Strategies that give shardings to a tree of parameters, and pipelines of stages."""

from shardwright.codegen.partition.strategies.pipeline import Pipeline, pipeline
from shardwright.codegen.partition.strategies.rules import (
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
    tensor_parallel,
)

__all__ = [
    "Pipeline",
    "data_parallel",
    "fsdp",
    "fsdp_tensor_parallel",
    "pipeline",
    "tensor_parallel",
]
