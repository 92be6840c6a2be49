"""Give every value of a JAX function a sharding, starting from the few that are given.

`entry` traces the function and reads its shardings; `constraints` has the functions that state
shardings inside it.
"""

from shardwright.codegen.partition import strategies as strategies
