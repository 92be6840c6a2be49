"""From a JAX function and a few shardings to a program for one device."""

from shardwright.codegen.partition.constraints import constrain, shard_alike
from shardwright.codegen.partition.partition import partition
from shardwright.codegen.partition.partitioned import Partitioned

__all__ = ["Partitioned", "constrain", "partition", "shard_alike"]
