"""Tasks of `gloo_rank.py`: gradients of what goes from a trainer to a server, moved by hand."""

from __future__ import annotations

import torch
from gloo_rank import bits, given_as, load, said


def by_hand(rank: int, case: dict) -> dict:
    """What is said of a shard that requires a gradient; the gradients that come back by the reverse
    reshard, or by the group of the way back."""
    module, back = (load(case[name]) for name in ("module", "back"))
    device = module._HOST.exchange.ranks[rank]
    members = getattr(module._HOST, "members", None)
    each = members or {"": module._HOST}
    shards = {
        name: torch.ones(member.source_shape(device), requires_grad=True)
        for name, member in each.items()
        if device in module._HOST.exchange.source.ids
    }
    given = (shards or None) if members else shards.get("")
    refused = said(lambda: module.reshard(given))
    with torch.no_grad():
        served = module.reshard(given)
    served = served if members else {"": served}
    for name, result in served.items():
        if result is not None:
            weights = given_as(tuple(result.shape), case["weights"][name][str(device)])
            (result.requires_grad_() * weights).sum().backward()
    found = {f"{name}_back": each.grad for name, each in served.items() if each is not None}
    gradients = back.reshard((found or None) if members else found.get("_back"))
    gradients = gradients if members else {"_back": gradients}
    return {
        "device": device,
        "said": refused,
        "gradients": {name.removesuffix("_back"): bits(each) for name, each in gradients.items()},
    }
