"""From a JAX function and a few shardings to a program whose every value has a sharding.

`entry` traces and reads what was said; `constraints` is what a function says inside.
"""

from shardwright.codegen.partition import strategies as strategies
