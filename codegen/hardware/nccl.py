"""The cost of NCCL collectives, by the table with which NCCL chooses algorithms.

Source: github.com/NVIDIA/nccl, src/graph/tuning.cc (2.28), microseconds and GB/s of rings on a host
of Hopper GPUs: `baseLatencies` for each collective, `hwLatencies` for each hop. The protocols LL
and LL128 send flags along with data: LL reaches `llMaxBws`, LL128 0.92 of what Simple does.

Simple's bandwidth is measured: 362 GB/s on eight H100 (github.com/NVIDIA/nccl/issues/1047: a ring
of 8 GiB), "around 370" of the 450 that data sheets have (issues/1374). Between hosts an adapter of
400 Gb/s reaches 48 GB/s (github.com/NVIDIA/nccl-tests/issues/267).
"""

from __future__ import annotations

from dataclasses import dataclass

COLLECTIVE = 6.6e-6  # baseLatencies: Ring, LL
LATENCY = 0.6e-6  # hwLatencies: NVLINK, Ring, LL
BETWEEN_LATENCY = 2.7e-6  # hwLatencies: NET, Ring, LL
BANDWIDTH = 370e9  # issues/1374
BETWEEN_BANDWIDTH = 8 * 48e9  # of a host's eight adapters, one way: nccl-tests/issues/267
_LL_BANDWIDTH = 141e9  # llMaxBws: Hopper, one node


@dataclass(frozen=True)
class Protocol:
    """A protocol for all collectives: factors on a collective's, a message's and a byte's cost in a
    topology's figures."""

    collective: float
    message: float
    byte: float


PROTOCOLS = (
    Protocol(1.0, 1.0, BANDWIDTH / _LL_BANDWIDTH),  # LL
    Protocol(14.0 / 6.6, 1.9 / 0.6, 1 / 0.92),  # LL128
    Protocol(8.4 / 6.6, 3.4 / 0.6, 1.0),  # Simple
)
"""For each collective the quickest is taken, as in NCCL."""
