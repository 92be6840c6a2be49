"""From a JAX function and a few shardings to a program in which every value has a sharding.

`entry` traces the function and reads its shardings; `constraints` are stated inside the function.
"""

from shardwright.codegen.partition import strategies as strategies
