"""Functions that a program calls several times, such as a layer: their parameters and calls.

Values from one subtree (such as the weights of a layer), or from one call, are a single parameter,
which the function unpacks.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.backends.jax_spmd.result_names import ResultPlaces
from shardwright.codegen.backends.jax_spmd.subtrees import (
    ends_of,
    named_subtrees,
    result_words,
)
from shardwright.codegen.backends.jax_spmd.trees import Path
from shardwright.codegen.partition.local.steps import CallFunction, Compute, LocalProgram, Step
from shardwright.codegen.trace.scopes import BACKWARD


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: a single value, or a tree that contains several values."""

    name: str
    prefixes: tuple[Path, ...]  # the tree in each call, () to build one; empty for a value
    slots: tuple[int, ...]  # indices of the values among a call's operands
    suffixes: tuple[Path, ...]  # paths of the values in the tree


@dataclass(frozen=True)
class CallNames:
    """The names for a function that is called several times.

    `function`: its own name; `made`: the name of the list with the results of its calls; `ends`:
    the path of each result in an item of that list; `layer`: the repeated part of the program, in
    words; `instance`: the name of the first call's scope, if any.
    """

    function: str
    made: str
    ends: tuple[Path, ...]
    layer: str
    instance: str

    def path(self, call: int, result: int) -> Path:
        """Return the path of result number `result` of call number `call`."""
        return (self.made, f"[{call}]", *self.ends[result])


def call_names(
    program: LocalProgram,
    names: LocalNames,
    results: ResultPlaces,
    places: Mapping[int, Path],
    paths: Mapping[int, Path],
) -> tuple[CallNames, ...]:
    """Return the names for each function. `places`: the paths of the program's results, whose keys
    become keys of the functions' results; `paths`: the paths of the program's arguments."""
    out = []
    inside = names.inside(())
    weights = {program.values[v].value: paths[v] for v in program.body.arguments if v in paths}
    for number, calls in enumerate(calls_of(program)):
        own = [
            _key(weights.get(program.values[local].value, ()), inside.own(local))
            for local in program.functions[number].results
        ]
        scope = scope_of_calls(program, number)
        layer = layer_of(scope)
        if not layer and _carried(program, calls) and _is_backward(program, calls):
            layer = f"{BACKWARD} of a {_item(calls, paths)}"
        item = layer.rpartition(" ")[2] or _item(calls, paths)
        word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", item).lower().replace(" ", "_")
        words = (word, f"{word}s")
        if layer.startswith(BACKWARD):
            words = (f"{word}_backward", f"{word}_gradients")
        elif not layer:
            is_whole = _is_layer(program, number, calls)
            parts = [] if is_whole else _parts(results, own, calls, places)
            said = listed_words(parts) if parts else ""
            if not parts and not is_whole and (most := _most_common(program, number)):
                parts, said = [most], f"part of the {most}"
            is_carried = len(calls[0].results) == 1 and bool(_carried(program, calls))
            layer = f"the value of {said} after a {item}" if is_carried else f"{said} of a {item}"
            layer = layer if said else f"a {item}"
            words = ("_".join((word, *parts)), "_".join((f"{word}s", *parts)))
        function, made = map(names.fresh, words)
        ends = ends_of(results, own, calls, places)
        out.append(CallNames(function, made, ends, layer, scope[-1] if scope else ""))
    return tuple(out)


def _is_layer(program: LocalProgram, number: int, calls: Sequence[CallFunction]) -> bool:
    """Return whether a function computes a layer, whatever its results are called: each call reads
    a result of the call before, the function has most of the steps that repeat, and neither it nor
    any other function has a scope."""
    sizes = [sum(isinstance(s, Compute) for s in each.steps) for each in program.functions]
    backward = any(re.match("d_|bwd_", program.of(v).name) for v in calls[0].results)
    if backward or not _carried(program, calls) or 2 * sizes[number] <= sum(sizes):
        return False
    return not any(scope_of_calls(program, each) for each in range(len(sizes)))


def _is_backward(program: LocalProgram, calls: Sequence[CallFunction]) -> bool:
    """Return whether all results of calls are of a backward pass."""
    return all(program.of(v).backward for call in calls for v in call.results)


def _carried(program: LocalProgram, calls: Sequence[CallFunction]) -> set[int]:
    """Return the values that the first call produces and the second call reads."""
    made, read = (
        {program.values[local].value for local in locals_}
        for locals_ in (calls[0].results, calls[1].operands)
    )
    return made & read


def _parts(
    ends: ResultPlaces,
    own: Sequence[str],
    calls: Sequence[CallFunction],
    places: Mapping[int, Path],
) -> list[str]:
    """Return the names of what a function without a scope computes: the subtrees of results that it
    fills, its results in such trees, or its only result. Return none if there are none."""
    if found := named_subtrees(ends, own, calls, places):
        return list(found)
    words = result_words(ends, calls)
    if len(words) == len(own) > 1:
        return list(words.values())
    return [own[0]] if len(set(own)) == 1 else []


def _most_common(program: LocalProgram, number: int) -> str:
    made = (s.results for s in program.functions[number].steps if isinstance(s, Compute))
    values = [program.of(v).name for results in made for v in results]
    words = Counter(re.sub("^(d|bwd)_", "", name).partition("_")[0] for name in values)
    return "".join(word for word, count in words.most_common(1) if 2 * count > len(values))


def listed_words(words: Sequence[str]) -> str:
    """Join words as in a sentence.

    >>> listed_words(["m"]), listed_words(["new", "m", "v"])
    ('m', 'new, m and v')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _key(path: Path, name: str) -> str:
    """Return the key of a result: the last word of the argument's path if there is one, such as
    `wq` for a gathered `params["layers"][0]["wq"]`, because that word is the same in every layer.
    Otherwise return the value's name."""
    words = re.findall(r"[A-Za-z_]\w*", "".join(path[1:]))
    return words[-1] if words else name


def _item(calls: Sequence[CallFunction], paths: Mapping[int, Path]) -> str:
    """Return a word for the subtree of arguments that each call takes: `layer` for
    `params["layers"][0]`, `Block` for `params["Block_0"]`, or "block" without such a subtree."""
    found: Counter[str] = Counter()
    for one, other in zip(calls[0].operands, calls[1].operands, strict=True):
        keys = ""
        for part, after in zip(paths.get(one, ()), paths.get(other, ()), strict=False):
            words = re.findall(r"[A-Za-z]\w*", part)
            is_one = _stem(part) == _stem(after)
            keys = words[-1] if words and is_one else keys
            if part != after:
                is_leaf = not is_one and paths[one][-1:] == (part,)
                item = f"{keys} leaf".strip() if is_leaf else re.sub(r"_?\d+$", "", keys)
                found[re.sub(r"(?<=[^s])s$", "", item)] += 1
                break
    return next((word for word, _ in found.most_common() if word), "block")


def _stem(part: str) -> str:
    """Return a part of a path without numbers: `[]` for both `[0]` and `[1]`."""
    return re.sub(r"\d+", "", part)


def scope_of_calls(program: LocalProgram, number: int) -> tuple[str, ...]:
    """Return the innermost scope that contains at least four fifths of a function's steps and no
    steps outside its calls, or () if there is none."""
    counts = _scopes(program, program.functions[number].steps)
    whole = (BACKWARD, program.program.name)  # the scopes of the traced function
    total = sum(isinstance(step, Compute) for step in program.functions[number].steps)
    outside = _scopes(program, program.body.steps)
    most = [
        scope
        for scope, count in counts.items()
        if 5 * count >= 4 * total and not outside[scope] and scope[-1] not in whole
    ]
    return max(most, key=len, default=())


def layer_of(scope: tuple[str, ...]) -> str:
    """Say a scope in words, such as `Block` or `backward of Block`, or "" for no scope."""
    if not scope:
        return ""
    word = re.sub(r"_?\d+$", "", scope[-1]) or scope[-1]
    return f"{BACKWARD} of {word}" if scope[0] == BACKWARD else word


def _scopes(program: LocalProgram, steps: Sequence[Step]) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for step in steps:
        scope = program.of(step.results[0]).scope if isinstance(step, Compute) else ()
        counts.update(scope[:end] for end in range(1, len(scope) + 1))
    return counts


def calls_of(program: LocalProgram) -> list[list[CallFunction]]:
    """Return the calls of each function, in order of execution."""
    calls: list[list[CallFunction]] = [[] for _ in program.functions]
    for step in program.body.steps:
        if isinstance(step, CallFunction):
            calls[step.function].append(step)
    return calls


def parameters(
    calls: Sequence[CallFunction],
    slots: Sequence[int],
    paths: Mapping[int, Path],
    named: Mapping[int, str],
    names: LocalNames,
    lists: Mapping[str, str],
    item: str,
) -> list[Parameter]:
    """Return the parameters for the operands at `slots`, trees first. `named`: a name for each
    operand; `lists`: the function whose results each list has, by the list's name; `item`: a word
    for what the function computes, such as `layer`."""
    trees: dict[tuple[Path, ...], list[tuple[int, Path]]] = defaultdict(list)
    for slot in slots:
        ways = [paths.get(call.operands[slot], ()) for call in calls]
        end = _common_end(ways)
        if end:
            trees[tuple(_start(way, end) for way in ways)].append((slot, end))
    out = []
    for prefixes, found in trees.items():
        if len(found) > 1:
            own, ends = zip(*found, strict=True)
            name = _tree_name(next(filter(None, prefixes)), lists, item)
            out.append(Parameter(names.fresh(name), prefixes, own, ends))
    in_trees = {slot for each in out for slot in each.slots}
    for slot in slots:
        if slot not in in_trees:
            out.append(Parameter(names.fresh(named[slot]), (), (slot,), ((),)))
    return out


def common_name(texts: Sequence[str]) -> str:
    """Return a parameter name for the expressions that calls pass as its argument: their last
    word without its number, or the words with which all of them begin, or "".

    >>> common_name(["x", 'layers[0]["x_3"]'])
    'x'
    >>> common_name(['m["norm"]["bias"]', 'm["norm"]["scale"]'])
    'm_norm'
    """
    words = [re.findall(r"[A-Za-z_]\w*", text) for text in texts if "(" not in text]
    known = [each for each in words if each]
    if not known:
        return ""
    if len({re.sub(r"_\d+$", "", each[-1]) for each in known}) == 1:
        return re.sub(r"_\d+$", "", known[0][-1])
    pairs = itertools.takewhile(lambda same: len(set(same)) == 1, zip(*known, strict=False))
    return "_".join(word for word, _ in itertools.groupby(same[0] for same in pairs))


def _start(way: Path, end: Path) -> Path:
    return way[: -len(end)] if way[-len(end) :] == end else ()


def _common_end(ways: Sequence[Path]) -> Path:
    """Return the longest proper suffix that paths share, or (). The first and the last path may
    differ, because the first and last calls may take the value from elsewhere."""
    inner = [way for way in ways[1:-1] or ways if len(way) > 1]
    if len(inner) < len(ways[1:-1] or ways) or len(set(ways)) == 1:
        return ()
    inner += [way for way in (ways[0], ways[-1]) if len(way) > 1 and way[0] == inner[0][0]]
    end: list[str] = []
    for parts in zip(*map(reversed, (way[1:] for way in inner)), strict=False):
        if len(set(parts)) > 1:
            break
        end.append(parts[0])
    found = tuple(reversed(end))
    of_dicts = all(part.startswith("[") for part in found)  # a call can build dicts and lists
    return found if of_dicts or all(way[-len(found) :] == found for way in ways) else ()


def _tree_name(prefix: Path, lists: Mapping[str, str], item: str) -> str:
    """Return the name of a parameter for a tree: `params_layer` for `params["layers"][0]`, and
    `cache_layer` for `cache[0]`, which is not all of `cache`."""
    first, *rest = prefix
    start = f"from_{lists[first]}" if first in lists else first
    words = re.findall(r"[A-Za-z]\w*", "".join((start, *rest)))
    if rest and _number(rest[-1]) is not None:  # an item of a list: use the singular
        one = re.sub(r"(?<=[^s])s$", "", words[-1])
        is_same = one == words[-1] and first not in lists and item.isidentifier()
        words[-1:] = [one, item] if is_same else [one]
    return re.sub(r"_\d+$", "", "_".join(word for word, _ in itertools.groupby(words)))


def regular(rows: Sequence[Sequence[Path]]) -> int:
    """Return the number of leading rows that can be written as one expression of their index. A row
    has the paths of one call's arguments."""
    count = min(2, len(rows))
    while count < len(rows) and _is_next(*rows[count - 2 : count + 1]):
        count += 1
    return count if count > 2 and _is_next(*rows[:3]) else min(1, len(rows))


def _is_next(*rows: Sequence[Path]) -> bool:
    """Return whether three rows differ only in numbers that increase by the same step."""
    for paths in zip(*rows, strict=True):
        if len({len(path) for path in paths}) > 1:
            return False
        for parts in zip(*paths, strict=True):
            known = [each for part in parts if (each := _counted(part)) is not None]
            grow = {after - before for (_, before), (_, after) in itertools.pairwise(known)}
            is_one = len(known) == len(parts) and len({key for key, _ in known}) == 1
            if len(set(parts)) > 1 and not (is_one and len(grow) == 1):
                return False
    return True


def _counted(part: str) -> tuple[str, int] | None:
    """Return the start of an item with a number, and the number.

    >>> _counted("[2]"), _counted('["Block_2"]'), _counted('["w"]')
    (('[', 2), ('["Block_', 2), None)
    """
    found = re.fullmatch(r'(\[|\["\w*?)(0|[1-9]\d*)"?\]', part)
    return (found[1], int(found[2])) if found else None


def _number(part: str) -> int | None:
    return int(part[1:-1]) if re.fullmatch(r"\[\d+\]", part) else None


def at_each(paths: Sequence[Path], first: int, variable: str) -> str:
    """Return the expression, with the index `variable`, for the paths of regular rows. `first`: the
    index of the first row."""
    out = []
    for part, other in zip(*paths[:2], strict=True):
        one, after = _counted(part), _counted(other)
        if part == other or one is None or after is None:
            out.append(part)
            continue
        key, start = one
        grows = after[1] - start
        at = _linear(start - grows * first, grows, variable)
        out.append(f"[{at}]" if key == "[" else f'[f{key[1:]}{{{at}}}"]')
    return "".join(out)


def _linear(offset: int, grows: int, variable: str) -> str:
    """Format `offset + grows * variable` as a person would.

    >>> _linear(0, 1, "i"), _linear(-1, 1, "i"), _linear(31, -1, "i"), _linear(2, 3, "i")
    ('i', 'i - 1', '31 - i', '3 * i + 2')
    """
    if grows < 0:
        return f"{offset} - {variable if grows == -1 else f'{-grows} * {variable}'}"
    term = variable if grows == 1 else f"{grows} * {variable}"
    return term if offset == 0 else f"{term} {'+' if offset > 0 else '-'} {abs(offset)}"
