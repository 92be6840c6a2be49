"""Tensors that CUDA graphs read. They are kept forever."""

import torch

from .torch_tensors import MADE

_READ: list = []


def keep(made):
    """Keep a tensor that a graph under capture reads."""
    _READ.append(made)


def table_of_graph(numbers, device):
    """Return integers as a tensor: a cached tensor, made on any stream, or else a new tensor
    that the graph fills."""
    found = MADE.get((numbers, device))
    if found is None:
        found = torch.empty(len(numbers), dtype=torch.int64, device=device)
        for place, number in zip(found, numbers, strict=True):
            place.fill_(number)
    keep(found)
    return found
