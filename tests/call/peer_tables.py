"""Parameters of the redistribution tests of torch and of JAX, as tables: `S0` is `Shard(0)`."""

from __future__ import annotations

REDISTRIBUTED = """
mesh   shape    source    order  target
4      12x3     S0        -      R
4      13x3     S0        -      R
4      14x3     R         -      S0
4      3x13     S1        -      R
4      3x14     R         -      S1
4      2x8      S0        -      S1
4      9x9      S1        -      S0
4      13x3     P         -      S0
4      3x14     P         -      R
4      2x3      S0        -      R
2,2    8x8      S0,S0     -      S0,S1
2,2    8x8      S0,S1     -      S0,S0
2,2    9x5      S0,S0     -      S1,S1
2,2    5x9      S1,S0     -      S0,S1
2,2    9x5      S1,S1     -      S1,S0
2,2    8x4      S0,S0     10     S0,S0
2,2    9x5      S1,S1     10     R,S0
2,2    7x4      S0,S0     10     R,R
2,2    8x8      F0,S0     -      S0,S0
2,2    9x4      F0,S0     -      S1,R
2,2    9x4      S0,S1     -      F0,S0
2,2    9x4      R,P       -      S0,R
2,2    9x4      P,P       -      R,S1
2,2    9x4      P,S0      -      S0,R
4,1    9x4      S0,S0     -      R,S1
1,4    9x4      S0,S0     10     S1,R
"""
"""test_redistribute.py of torch: `P` is `Partial()`, `F0` what FSDP2 makes of `Shard(0)` over two
ranks of tensor parallelism; order: the mesh dimensions in the order in which they cut."""

SPECS = ("", "x", "y", "x,y", "y,x", "xy", ",x", ",xy", "y,", ",y")
"""Of arrays of shape 8x8 on x=4, y=2 in array_test.py and pjit_test.py of JAX: `xy` is one entry of
both axes."""
