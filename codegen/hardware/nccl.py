"""The cost of NCCL collectives, from the table by which NCCL chooses its algorithm and protocol.

Source: github.com/NVIDIA/nccl, src/graph/tuning.cc (2.28), the values of rings on a host of Hopper
GPUs, in microseconds and GB/s: `baseLatencies` for each collective, `hwLatencies` for each hop. The
protocols LL and LL128 send flags along with the data: LL reaches the bandwidth `llMaxBws`, and
LL128 reaches 0.92 of the bandwidth of Simple.

The bandwidth of Simple was measured: 362 GB/s on eight H100s (github.com/NVIDIA/nccl/issues/1047, a
ring of 8 GiB), and "around 370" GB/s, where data sheets state 450 (issues/1374). Between hosts, an
adapter of 400 Gb/s reaches 48 GB/s (github.com/NVIDIA/nccl-tests/issues/267).
"""

from __future__ import annotations

from dataclasses import dataclass

COLLECTIVE = 6.6e-6  # seconds; baseLatencies: Ring, LL
LATENCY = 0.6e-6  # seconds per message; hwLatencies: NVLINK, Ring, LL
BETWEEN_LATENCY = 2.7e-6  # seconds per message between hosts; hwLatencies: NET, Ring, LL
BANDWIDTH = 370e9  # bytes per second of a GPU; issues/1374
BETWEEN_BANDWIDTH = 8 * 48e9  # the eight adapters of a host, one way: nccl-tests/issues/267
_LL_BANDWIDTH = 141e9  # llMaxBws: Hopper, one node


@dataclass(frozen=True)
class Protocol:
    """A protocol of NCCL: its factors on a topology's time per collective, per message and per
    byte."""

    collective: float
    message: float
    byte: float


PROTOCOLS = (
    Protocol(1.0, 1.0, BANDWIDTH / _LL_BANDWIDTH),  # LL
    Protocol(14.0 / 6.6, 1.9 / 0.6, 1 / 0.92),  # LL128
    Protocol(8.4 / 6.6, 3.4 / 0.6, 1.0),  # Simple
)
"""The protocols. Each collective uses the fastest one, as NCCL does."""
