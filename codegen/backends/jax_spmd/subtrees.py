"""The results of functions that a program calls several times, and the subtrees of the program's
results that they fill."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from shardwright.codegen.backends.jax_spmd.result_names import ResultPlaces
from shardwright.codegen.backends.jax_spmd.trees import Path
from shardwright.codegen.partition.local.steps import CallFunction, LocalProgram


def distinct(texts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a key for the text of each result: the text itself if it is an identifier, otherwise a
    key similar to the result's name. Only equal texts share a key.

    >>> distinct(["a", "b[:, None]", "c[:, None]", "b[:, None]"], ["a", "a", "cast", "a"])
    ['a', 'a_2', 'cast', 'a_2']
    """
    keys = {text: text for text in texts if text.isidentifier()}
    taken = list(keys)
    for text, name in zip(texts, names, strict=True):
        keys[text] = keys.get(text) or _free(name, taken)
    return [keys[text] for text in texts]


def ends_of(
    results: ResultPlaces,
    own: Sequence[str],
    calls: Sequence[CallFunction],
    places: Mapping[int, Path],
) -> tuple[Path, ...]:
    """Return the path of each of a function's results in the value that it returns. For results
    that the program returns in one subtree, it is their path there; otherwise it is the result's
    name. `own`: the names of results; results with equal names are the same value."""
    if len(own) == 1:
        return ((),)
    ends: dict[int, Path] = {}
    taken: list[str] = []
    subtrees = named_subtrees(results, own, calls, places)
    if [{*range(len(own))}] == [{*found} for found in subtrees.values()]:
        (only,) = subtrees.values()
        return tuple(only[slot] for slot in range(len(own)))
    for name, found in subtrees.items():
        taken.append(name)
        ends.update((slot, (f'["{name}"]', *end)) for slot, end in found.items())
    keys: dict[str, str] = {}
    words = result_words(results, calls)
    for slot, name in enumerate(own):
        if slot not in ends:
            keys[name] = keys.get(name) or _free(words.get(slot, name), taken)
            ends[slot] = (f'["{keys[name]}"]',)
    return tuple(ends[slot] for slot in range(len(own)))


def named_subtrees(
    results: ResultPlaces,
    own: Sequence[str],
    calls: Sequence[CallFunction],
    places: Mapping[int, Path],
) -> dict[str, dict[int, Path]]:
    """Return, by name, the subtrees of the program's results that calls fill, such as a layer of
    parameters: for each result in it, its path in the subtree.

    A subtree is named after the role of its results, such as `params`. Without a role that it alone
    has, it is named "gradients" if all its values are, or after their most frequent name.
    """
    found = [*_subtrees(calls, places).values()]
    roles = [{role_of(results, calls, slot) for slot in slots} for slots in found]
    words = ["".join(each) if len(each) == 1 else "" for each in roles]
    named: dict[str, dict[int, Path]] = {}
    taken: list[str] = []
    for slots, word in zip(found, words, strict=True):
        values = Counter(re.sub(r"_\d+$", "", own[slot]) for slot in slots)
        most = values.most_common(1)[0][0]
        most = "gradients" if all(value.startswith("d_") for value in values) else most
        is_clear = word and words.count(word) == 1
        named[_free(word if is_clear else most, taken)] = slots
    return named


def result_words(results: ResultPlaces, calls: Sequence[CallFunction]) -> dict[int, str]:
    """Return the role of each result of a function that the program returns, such as `mu`, or the
    first word of its path if it has no role. Omit words that another result has too."""
    found = {slot: role_of(results, calls, slot) for slot in range(len(calls[0].results))}
    counts = Counter(found.values())
    return {slot: word for slot, word in found.items() if word and counts[word] == 1}


def role_of(results: ResultPlaces, calls: Sequence[CallFunction], slot: int) -> str:
    """Return the role of a function's result among the program's results or, without one, the first
    word of its path. Return "" if it is not a result of the program in all calls."""
    place = results.of([call.results[slot] for call in calls])
    if place is None:
        return ""
    return place.role or "".join([word for word in place.words if word.isidentifier()][:1])


def _subtrees(
    calls: Sequence[CallFunction], places: Mapping[int, Path]
) -> dict[tuple[Path, ...], dict[int, Path]]:
    """Return the dicts among the program's results in which each call fills several results, by
    their paths in each call. A path ends after the last part that differs between calls."""
    found: dict[tuple[Path, ...], dict[int, Path]] = defaultdict(dict)
    for slot in range(len(calls[0].results)):
        ways = [places.get(call.results[slot], ()) for call in calls]
        parts = list(zip(*ways, strict=False))
        last = max((at for at, part in enumerate(parts) if len(set(part)) > 1), default=-1)
        end = ways[0][last + 1 :]
        if end and last >= 0 and all(part.startswith('["') for part in end):
            found[tuple(way[: last + 1] for way in ways)][slot] = end
    return {starts: slots for starts, slots in found.items() if len(slots) > 1}


def _free(name: str, taken: list[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.append(found)
    return found


def every_name(program: LocalProgram, calls: Sequence[CallFunction]) -> dict[str, str]:
    """Return, for each of the program's results that the first call of a function produces, the
    name of the corresponding results of all calls: `result[0][i]` for `result[0][0]`."""
    said = dict(zip(program.body.results, program.program.result_names, strict=True))
    found = {}
    for slot, local in enumerate(calls[0].results):
        names = [said.get(call.results[slot], "") for call in calls]
        parts = list(zip(*(re.split(r"(\d+)", name) for name in names), strict=False))
        if all(names):
            every = "".join(part[0] if len(set(part)) == 1 else "i" for part in parts)
            found[said[local]] = every
    return found
