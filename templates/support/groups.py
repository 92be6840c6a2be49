"""The bundles of a group's tensors, and the assignment of arguments to tensors."""

import importlib
import re
from collections import Counter

from .boxes import common
from .exchanges import Exchange
from .gaps import volume


def hosts_of(package, backend, plans):
    """Return the hosts of a group's sibling bundles. `plans`: their plan hashes by folder name.
    Raises ImportError if a bundle is missing or has a different plan.
    """
    root, found = package.rpartition(".")[0], []
    for name, plan in plans.items():
        try:
            module = importlib.import_module(f"{root}.{name}.{backend}")
        except ModuleNotFoundError as error:
            said = f"{error.name} is missing: a group needs the bundles of its tensors next to it"
            raise ImportError(said) from error
        if plan != module.PLAN:
            said = f"{module.__name__} has plan {module.PLAN}, expected {plan}: emit both again"
            raise ImportError(said)
        found.append(module._HOST)
    return found


def order_of(paths, names, what="tensors"):
    """Return, for each name, the index of its leaf among leaves at `paths` (tuples of keys). Leaves
    of a flat list match names in order. Leaves of other trees match by their keys, joined with
    underscores; punctuation in keys becomes underscores.

    Raises ValueError if leaves and names do not match.
    """
    if paths and all(len(path) == 1 and isinstance(path[0], int) for path in paths):
        if len(paths) != len(names):
            raise ValueError(f"{what}: got {len(paths)}, expected {len(names)}")
        return range(len(names))
    given = [".".join(map(str, path)) for path in paths]
    place = {re.sub(r"\W", "_", name): number for number, name in enumerate(given)}
    faults = [f"{name} is missing" for name in names if name not in place]
    faults += [f"unknown name {n}" for n in given if re.sub(r"\W", "_", n) not in {*names}]
    if not faults and len(place) < len(given):
        faults = [f"got {len(given)} keys that make only {len(place)} names"]
    if faults:
        more = f", and {len(faults) - 3} more" * (len(faults) > 3)
        raise ValueError(f"{what}: {', '.join(faults[:3])}{more}")
    return [place[name] for name in names]


def moves_of(host):
    """Return the exchange that moves a tensor: the exchange of its bundle or, if the bundle uses
    collectives, an exchange of whole tiles in which the holders of a tile take turns as senders."""
    if host.exchange is not None:
        return host.exchange
    source, target = host.source, host.target
    holders: dict[tuple, list[int]] = {}
    for position in range(len(source.ids)):
        holders.setdefault(tuple(source.box(position)), []).append(position)
    place = {device_id: position for position, device_id in enumerate(source.ids)}
    turns: Counter[tuple] = Counter()
    senders: list[list[int]] = []
    for receiver, device_id in enumerate(target.ids):
        senders.append([])
        for box, held in holders.items():
            if not volume(common(box, target.box(receiver))):
                continue
            if place.get(device_id) in held:
                senders[-1].append(place[device_id])
                continue
            senders[-1].append(held[turns[box] % len(held)])
            turns[box] += 1
    return Exchange(source, target, senders.__getitem__, None, by_plan=False)


def flat(tree, is_leaf, path=()):
    """Yield the path of keys and the value of each leaf of nested dicts, lists and tuples.
    `is_leaf` returns whether a list or tuple is itself a leaf."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from flat(value, is_leaf, (*path, key))
    elif isinstance(tree, list | tuple) and not is_leaf(tree):
        for key, value in enumerate(tree):
            yield from flat(value, is_leaf, (*path, key))
    else:
        yield path, tree


def rebuilt(tree, is_leaf, leaves):
    """Return a container like `tree`, except that tuples become lists, whose leaves are taken
    from the iterator `leaves`."""
    if isinstance(tree, dict):
        return {key: rebuilt(value, is_leaf, leaves) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and not is_leaf(tree):
        return [rebuilt(value, is_leaf, leaves) for value in tree]
    return next(leaves)
