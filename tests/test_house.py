"""The rules of the house: who imports whom, where names of backends and private names may stand,
how templates, classes and docstrings are. Each rule is shown to fail on a planted breach."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest
from places import ROOT

Tree = dict[str, str]
"""The texts of files by their path in the tree."""

LAYERS = (
    ("ir/",),
    ("codegen/hardware/",),
    ("codegen/ops/",),
    ("codegen/registry/",),
    ("codegen/spec/",),
    ("codegen/moves/", "codegen/learn/"),
    ("codegen/trace/", "codegen/propagate/", "codegen/partition/"),
    ("codegen/text/",),
    ("codegen/checks/",),
    ("codegen/show/",),
    ("codegen/backends/",),
    ("codegen/operations/",),
    ("codegen/audit/", "codegen/call/"),
    ("codegen/cli/",),
)
"""The rooms, from the lowest up: a room imports only from its own row and the rows above it."""

BACKENDS = ("pallas_tpu", "triton_gpu", "jax_xla")
PRIVATE = {
    "codegen/backends/pallas_tpu/verify/interpreter.py": "races and semaphores are recorded there",
    "codegen/backends/pallas_tpu/verify/poison.py": "fresh memory is allocated there",
    "codegen/backends/triton_gpu/verify/dtensors.py": "torch says what ranks hold",
}
"""Files that use private names of jax, triton or torch, and what for."""

SLOW = frozenset(("jax", "torch", "triton", "sympy", "scipy", "jinja2", "lark", "rich"))
MANY = 8
"""A file may be imported in a function if it loads one of these packages, or this many files: what
a command does not run should not slow its start."""

DESCRIBED = re.compile(r"(?:(?:Matmul|Program|Relayout|Model)?Description|Group)")
"""The classes of what a bundle may be of."""

LONGEST_TEMPLATE = 8
"""Most conditions in a template."""

LONGEST_FILE = 400
LONGEST_FUNCTION = 50
"""The largest number of lines in a file, and in a function after its docstring."""

NO_VERBS = re.compile(
    r"(?:(?:The|A|An|What|Whether|Which|Who|Whom|How|Why|Where|When|Every|Each|All|Some|Any|No|One|Two|"
    r"Both|Of|For|From|In|Into|Inside|Outside|Over|Per|By|As|At|Around|Along|With|Without|So|More|"
    r"Is|Are|Do|Does|They|It|Its|Itself|This|That|These|Those|[A-Z][a-z]*[^s]s)\b|\(|`|[a-z])"
)
"""What the docstring of a function does not begin with: it begins with an imperative."""


@cache
def files() -> tuple[tuple[str, str], ...]:
    """The sources and templates, by path."""
    paths = [path for folder in ("ir", "codegen") for path in (ROOT / folder).rglob("*.py")]
    paths += (ROOT / "templates").rglob("*.jinja")
    return tuple((str(p.relative_to(ROOT)), p.read_text(encoding="utf-8")) for p in sorted(paths))


def tree() -> Tree:
    """The sources as they are."""
    return dict(files())


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(module: ast.Module) -> tuple[ast.AST, ...]:
    """All of a file's, once for all rules."""
    return tuple(ast.walk(module))


def sources(given: Tree) -> Iterator[tuple[str, ast.Module]]:
    """Every Python file, parsed."""
    for path, text in given.items():
        if path.endswith(".py"):
            yield path, parsed(text)


def imported(path: str, node: ast.AST, given: Tree) -> Iterator[str]:
    """The files of ours that an import statement names."""
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        parts = name.removeprefix("shardwright.").split(".")
        for end in (len(parts), len(parts) - 1):
            found = "/".join(parts[:end])
            file = f"{found}.py" if f"{found}.py" in given else f"{found}/__init__.py"
            if name.startswith("shardwright.") and file in given:
                if file != path:
                    yield file
                break


def is_checked(node: ast.If) -> bool:
    """Whether a statement is for type checkers alone."""
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those that run when a module is imported."""
    for node in body:
        if isinstance(node, ast.If) and is_checked(node):
            continue
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from statements(node.body)


@cache
def executed_imports(module: ast.Module) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Those of a file, but what is for type checkers alone."""
    hidden = {
        id(inner)
        for node in nodes(module)
        if isinstance(node, ast.If) and is_checked(node)
        for inner in ast.walk(node)
    }
    found = (node for node in nodes(module) if isinstance(node, ast.Import | ast.ImportFrom))
    return tuple(node for node in found if id(node) not in hidden)


def layer(path: str) -> int:
    """Return the number of a file's layer."""
    fitting = (number for number, rooms in enumerate(LAYERS) if path.startswith(rooms))
    return next(fitting, len(LAYERS))


def imports_go_down(given: Tree) -> Iterator[str]:
    """Rule 1: nothing imports what stands above it."""
    for path, module in sources(given):
        for node in executed_imports(module):
            for file in imported(path, node, given):
                if layer(file) > layer(path):
                    yield f"{path} imports {file}, which stands above it"


def no_circles(given: Tree) -> Iterator[str]:
    """Rule 1: no circle of files."""
    edges = {
        path: {f for node in statements(module.body) for f in imported(path, node, given)}
        for path, module in sources(given)
    }
    done: set[str] = set()

    def visit(path: str, way: tuple[str, ...]) -> Iterator[str]:
        if path in way:
            circle = way[way.index(path) :]
            first = circle.index(min(circle))  # the same circle, wherever one enters it
            yield " -> ".join((*circle[first:], *circle[:first], circle[first]))
        elif path not in done:
            for file in sorted(edges[path]):
                yield from visit(file, (*way, path))
            done.add(path)

    for path in sorted(edges):
        yield from visit(path, ())


def loaded(given: Tree) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The files and the packages that each file imports as it is imported itself."""
    inner: dict[str, set[str]] = {}
    outer: dict[str, set[str]] = {}
    for path, module in sources(given):
        found = [
            node
            for node in statements(module.body)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        inner[path] = {file for node in found for file in imported(path, node, given)}
        names = [node.module or "" for node in found if isinstance(node, ast.ImportFrom)]
        names += [
            each.name for node in found if isinstance(node, ast.Import) for each in node.names
        ]
        outer[path] = {name.split(".")[0] for name in names}
    return inner, outer


def reached(path: str, edges: dict[str, set[str]]) -> set[str]:
    """A file and all that it imports, directly or not."""
    found, left = {path}, [path]
    while left:
        new = edges[left.pop()] - found
        found |= new
        left += new
    return found


def imports_stand_at_the_top(given: Tree) -> Iterator[str]:
    """Rule 1: a function imports a file of ours only if that file is slow to load."""
    inner, outer = loaded(given)
    for path, module in sources(given):
        top = set(map(id, statements(module.body)))
        for node in executed_imports(module):
            for file in imported(path, node, given) if id(node) not in top else ():
                files_ = reached(file, inner)
                if len(files_) < MANY and not any(outer[each] & SLOW for each in files_):
                    yield f"{path}:{node.lineno} imports {file} in a function"


def backends_stay_home(given: Tree) -> Iterator[str]:
    """Rule 2: a backend's name occurs in its own folder and in the registry."""
    for path, module in sources(given):
        if path == "codegen/registry/__init__.py":
            continue
        texts = (
            node.value
            for node in nodes(module)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        for text in texts:
            for name in BACKENDS:
                at_home = path.startswith(f"codegen/backends/{name}/")
                if text == name and not at_home:
                    yield f"{path} names {name}"


def nothing_is_asked_by_hasattr(given: Tree) -> Iterator[str]:
    """Rule 2: what a module or a backend can do is said by its contract. Traces ask it of JAX."""
    for path, module in sources(given):
        if path.startswith("codegen/trace/"):
            continue
        for node in nodes(module):
            if isinstance(node, ast.Name) and node.id == "hasattr":
                yield f"{path}:{node.lineno} asks hasattr"


def private_names_are_listed(given: Tree) -> Iterator[str]:
    """Rule 3: private names of jax, triton and torch stand in `PRIVATE`'s files alone."""
    private = re.compile(r"^\s*(?:from|import) (?:jax|jaxlib|triton|torch)(?:\.\w+)*\._\w+", re.M)
    for path, text in given.items():
        if path.endswith(".py") and path not in PRIVATE and private.search(text):
            yield f"{path} imports private names"


def templates_choose_little(given: Tree) -> Iterator[str]:
    """Rule 4: a template has few conditions."""
    for path, text in given.items():
        count = len(re.findall(r"\{%-? *(?:el)?if ", text)) if path.endswith(".jinja") else 0
        if count > LONGEST_TEMPLATE:
            yield f"{path} has {count} conditions"


def classes_are_unique(given: Tree) -> Iterator[str]:
    """Rule 5: no two classes have one name."""
    homes = defaultdict(list)
    for path, module in sources(given):
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path)
    for name, paths in homes.items():
        if len(paths) > 1:
            yield f"{name} is in {', '.join(paths)}"


def file_names_are_unique(given: Tree) -> Iterator[str]:
    """Rule 5: no two files have one name in folders of one name, but in sibling backends."""
    homes = defaultdict(list)
    for path, _ in sources(given):
        at = PurePosixPath(path)
        if at.name != "__init__.py":
            homes["/".join(at.parts[-2:])].append(path)
    for paths in homes.values():
        if len(paths) > 1 and not all(path.startswith("codegen/backends/") for path in paths):
            yield f"{' and '.join(sorted(paths))} have one name"


def files_are_short(given: Tree) -> Iterator[str]:
    """Rule 7: a file and a function longer than this are split."""
    for path, text in given.items():
        if (lines := text.count("\n")) > LONGEST_FILE:
            yield f"{path} has {lines} lines"
    for path, module in sources(given):
        for node in nodes(module):
            if isinstance(node, ast.FunctionDef) and length(node) > LONGEST_FUNCTION:
                yield f"{path}:{node.lineno} {node.name} has {length(node)} lines"


def length(node: ast.FunctionDef) -> int:
    """The number of lines of a function after its docstring."""
    body = node.body[ast.get_docstring(node, clean=False) is not None :] or node.body
    assert node.end_lineno is not None
    return node.end_lineno - body[0].lineno + 1


def kinds_are_asked(given: Tree) -> Iterator[str]:
    """No file asks what a bundle is of, by class: the answers stand in `codegen/operations`."""
    for path, module in sources(given):
        for node in nodes(module):
            asked: list[ast.AST] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = list(ast.walk(node.args[1]))
            elif isinstance(node, ast.MatchClass):
                asked = [node.cls]
            for each in asked:
                if isinstance(each, ast.Name) and DESCRIBED.fullmatch(each.id):
                    yield f"{path} asks for {each.id}"


def docstrings_are_imperative(given: Tree) -> Iterator[str]:
    """Rule 6: the docstring of a function says what it does, as a command."""
    for path, module in sources(given):
        for node in nodes(module):
            if not isinstance(node, ast.FunctionDef) or is_described(node):
                continue
            text = ast.get_docstring(node) or ""
            if NO_VERBS.match(text):
                yield f"{path}:{node.lineno} {node.name}: {text.splitlines()[0]}"


def is_described(node: ast.FunctionDef) -> bool:
    """Whether a docstring says what something is: that of an attribute, that of the program."""
    names = (ast.unparse(decorator) for decorator in node.decorator_list)
    return any(name.endswith(("property", ".setter", ".callback()")) for name in names)


Rule = Callable[[Tree], Iterator[str]]
BREACHES: dict[Rule, tuple[str, str, str]] = {
    imports_go_down: (
        "ir/layout.py",
        "import shardwright.codegen.moves.direct",
        "ir/layout.py imports codegen/moves/direct.py, which stands above it",
    ),
    no_circles: (
        "ir/errors.py",
        "from shardwright.ir.axes import AxisRef",
        "ir/axes.py -> ir/errors.py -> ir/axes.py",
    ),
    imports_stand_at_the_top: (
        "ir/tiles.py",
        "def planted() -> None:\n    from shardwright.ir import mesh",
        "ir/tiles.py:{inside} imports ir/mesh.py in a function",
    ),
    backends_stay_home: (
        "codegen/cli/plan.py",
        'NAME = "pallas_tpu"',
        "codegen/cli/plan.py names pallas_tpu",
    ),
    nothing_is_asked_by_hasattr: (
        "codegen/operations/bundles/check.py",
        "hasattr(1, 'x')",
        "codegen/operations/bundles/check.py:{line} asks hasattr",
    ),
    private_names_are_listed: (
        "codegen/checks/compare.py",
        "from jax._src import core",
        "codegen/checks/compare.py imports private names",
    ),
    templates_choose_little: (
        "templates/common/package.py.jinja",
        "{% if m %}{% endif %}" * 9,
        "templates/common/package.py.jinja has {count} conditions",
    ),
    classes_are_unique: (
        "ir/mesh.py",
        "class Layout: ...",
        "Layout is in ir/layout.py, ir/mesh.py",
    ),
    file_names_are_unique: (
        "codegen/show/ir/mesh.py",
        "MESH = 1",
        "codegen/show/ir/mesh.py and ir/mesh.py have one name",
    ),
    files_are_short: (
        "ir/tiles.py",
        "def planted() -> None:\n" + "    print()\n" * 51,
        "ir/tiles.py:{line} planted has 51 lines",
    ),
    kinds_are_asked: (
        "codegen/operations/bundles/verify.py",
        "isinstance(1, int | MatmulDescription)",
        "codegen/operations/bundles/verify.py asks for MatmulDescription",
    ),
    docstrings_are_imperative: (
        "ir/tiles.py",
        'def planted() -> int:\n    """The number."""',
        "ir/tiles.py:{line} planted: The number.",
    ),
}


@cache
def broken(rule: Rule) -> list[str]:
    """Where the tree does not keep a rule."""
    return list(rule(tree()))


@pytest.mark.parametrize("rule", BREACHES, ids=lambda rule: rule.__name__)
def test_rule(rule: Rule) -> None:
    """The tree keeps it."""
    assert broken(rule) == []


@pytest.mark.parametrize("rule", BREACHES, ids=lambda rule: rule.__name__)
def test_breach(rule: Rule) -> None:
    """A tree with one planted breach does not, and that is what the rule says."""
    path, planted, said = BREACHES[rule]
    text = tree().get(path, "")
    breached = {**tree(), path: f"{text}\n{planted}\n"}
    line = breached[path][: breached[path].index(planted)].count("\n") + 1
    count = len(re.findall(r"\{% if ", breached[path]))
    assert said.format(line=line, inside=line + 1, count=count) in set(rule(breached)) - set(
        broken(rule)
    )


def test_every_file_has_a_layer() -> None:
    """Every file but the package's own is in a room, and every room has files."""
    paths = [path for path, _ in sources(tree())]
    assert [path for path in paths if layer(path) == len(LAYERS)] == ["codegen/__init__.py"]
    rooms = [room for row in LAYERS for room in row]
    assert [room for room in rooms if not any(path.startswith(room) for path in paths)] == []
    assert all(PurePosixPath(path).suffix == ".py" for path in PRIVATE)


EMITTED = """
import sys
import shardwright as sw
mesh = sw.Mesh({"x": 2, "y": 3})
sides = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
sw.emit(sw.Reshard((12, 12), "int8", *sides), (sys.argv[1],)).files("a")
print(*(name for name in sys.modules if name.startswith("shardwright.codegen.backends.")))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_emitting_with_one_backend_imports_no_other(backend: str) -> None:
    command = [sys.executable, "-c", EMITTED, backend]
    names = subprocess.run(command, text=True, capture_output=True, check=True).stdout.split()
    found = {name.split(".")[3] for name in names} & set(BACKENDS)
    assert found == {backend}


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by name, and cannot collect both in one run."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted({*names})


def test_what_git_ignores_is_not_tracked() -> None:
    """The copies that emission keeps of edited files are the user's, and a release has none."""
    command = ("git", "ls-files", "--cached", "--ignored", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    assert listed.stdout == ""
