"""Join a module and its support modules into one file.

Only relative imports and the check for a package are dropped; other imports move to the top. All
other text is unchanged, byte for byte. Each support module comes before the modules that import it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from shardwright.codegen.spec.manifest import SUPPORT
from shardwright.codegen.text.support import PACKAGE
from shardwright.ir.errors import InternalError

Reader = Callable[[str], str]
"""Returns the text of a support module, given its name."""


@dataclass(frozen=True)
class _Piece:
    """The parts of a module to join.

    `imports`: its imports at the top; `later`: the support modules that it imports inside
    functions; `early`: other statements among the imports; `body`: the statements that follow;
    `defines`: the names that the body defines.
    """

    name: str
    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    later: tuple[str, ...]
    early: str
    body: str
    defines: frozenset[str]

    @property
    def needs(self) -> tuple[str, ...]:
        relative = (n for n in self.imports if isinstance(n, ast.ImportFrom) and n.level)
        return tuple(sorted({_target(node) for node in relative}))


def single_file(text: str, support: Reader) -> str:
    """Return the text of a module together with the support modules that it imports."""
    own = _taken_apart("", text)
    if not own.needs:
        return text
    pieces: dict[str, _Piece] = {}
    for name in own.needs:
        _collect(name, support, pieces)
    _collect_later(own, support, pieces)
    _check_names((*pieces.values(), own))
    inlined = (f"# {_path(p.name)}\n{p.docstring}\n{p.body}" for p in pieces.values())
    ours, others = _imports([*pieces.values(), own])
    top = "\n\n".join(part for part in (ours, own.early, others) if part)
    *first, last = inlined
    head = "\n".join([own.docstring, "", top, ""])
    return "\n".join([head, *(f"{each}\n" for each in first), last, own.body])


def _path(name: str) -> str:
    return f"{SUPPORT}/{name}.py"


def _collect(name: str, support: Reader, pieces: dict[str, _Piece]) -> None:
    """Add a support module to the pieces, after the modules that it imports."""
    if name in pieces:
        return
    piece = _taken_apart(name, support(name))
    for needed in piece.needs:
        _collect(needed, support, pieces)
    pieces[name] = piece


def _collect_later(own: _Piece, support: Reader, pieces: dict[str, _Piece]) -> None:
    every = (own, *pieces.values())
    while lacking := sorted({n for p in every for n in p.later if n not in pieces}):
        _collect(lacking[0], support, pieces)
        every = (own, *pieces.values())


@lru_cache(maxsize=64)  # cached, because support modules are long
def _taken_apart(name: str, text: str) -> _Piece:
    lines = text.splitlines(keepends=True)
    docstring, *statements = ast.parse(text).body
    last = max(
        (k for k, n in enumerate(statements) if isinstance(n, ast.Import | ast.ImportFrom)),
        default=-1,
    )
    head = statements[: last + 1]
    imports = tuple(node for node in head if isinstance(node, ast.Import | ast.ImportFrom))
    others = [n for n in head if n not in imports and not _is_guard(n)]
    end = head[-1].end_lineno if head else docstring.end_lineno
    inner = [
        node
        for statement in statements[last + 1 :]
        for node in ast.walk(statement)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    for node in inner:  # also remove the empty line below the import
        spaced = not lines[node.end_lineno or 0].strip()
        lines[node.lineno - 1 : (node.end_lineno or 0) + spaced] = [""] * (
            (node.end_lineno or 0) + spaced - node.lineno + 1
        )
    return _Piece(
        name=name,
        docstring=_source(lines, docstring),
        imports=imports,
        later=tuple(sorted({_target(node) for node in inner})),
        early="\n".join(_source(lines, node) for node in others),
        body="".join(lines[end:]),
        defines=frozenset(_defined(statements[last + 1 :])),
    )


def _source(lines: list[str], node: ast.stmt) -> str:
    return "".join(lines[node.lineno - 1 : node.end_lineno]).rstrip("\n")


def _is_guard(node: ast.stmt) -> bool:
    """Return whether a statement is the check `if not __package__:`, which would fail in a single
    file."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "not __package__"


def _target(node: ast.ImportFrom) -> str:
    *_, last = (node.module or SUPPORT).split(".")
    if any(alias.asname for alias in node.names):
        raise InternalError(f"an import from {last} must not rename: {ast.unparse(node)}")
    return PACKAGE if last == SUPPORT else last


def _defined(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for node in statements:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _check_names(pieces: tuple[_Piece, ...]) -> None:
    counts = Counter(name for piece in pieces for name in piece.defines)
    twice = sorted(name for name, count in counts.items() if count > 1 and name != "__all__")
    if twice:
        raise InternalError(f"several modules of a single file define {', '.join(twice)}")


def _imports(pieces: Iterable[_Piece]) -> tuple[str, str]:
    plain: set[str] = set()
    named: dict[str, set[str]] = {}
    for node in (node for piece in pieces for node in piece.imports):
        if isinstance(node, ast.Import):
            plain.add(ast.unparse(node))
        elif not node.level:
            names = {ast.unparse(alias) for alias in node.names}
            named.setdefault(node.module or "", set()).update(names)
    lines = sorted(plain, key=lambda line: line.split()[1].lower())
    for module in sorted(named):
        renamed = {name for name in named[module] if " as " in name}
        if named[module] - renamed:
            listed = sorted(named[module] - renamed, key=_by_kind)
            lines.append(f"from {module} import {', '.join(listed)}")
        lines += [f"from {module} import {name}" for name in sorted(renamed)]
    own = [line for line in lines if line.split()[1].split(".")[0] in sys.stdlib_module_names]
    return "\n".join(own), "\n".join(line for line in lines if line not in own)


def _by_kind(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name
