"""The graph of imports, for type checks too: the list of pure modules is complete, and circles only get fewer."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CORES = next(contract for contract in CONTRACTS if contract["name"].startswith("Cores"))
ROOMS = ("client", "http", "messenger", "protocol", "proxy", "security", "server", "services")

CIRCLES: dict[str, int] = {}
"""How many modules of a folder import each other in a circle, nearly all for the type checker only.

Where there are fewer the number here is lowered; more is refused.
"""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    out = {}
    for path in sorted((ROOT / "pubsub").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


@cache
def imports(module: str, *, typing: bool = True) -> frozenset[str]:
    """What a module imports, wherever in it; `typing`: also what is only for the type checker."""
    tree = ast.parse(modules()[module].read_text())
    hidden = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in block.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in hidden and not typing:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{module} imports relatively"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules().keys() or {node.module}
            if names - modules().keys():
                found.add(node.module)
    return frozenset(found)


def impure(module: str) -> bool:
    """Whether a module imports, itself or through others, what a core may not."""
    seen, todo = set(), [module]
    while todo:
        for name in imports(todo.pop(), typing=False) - seen:
            seen.add(name)
            if name.partition(".")[0] in CORES["forbidden_modules"]:
                return True
            if name in modules():
                todo.append(name)
    return False


def test_every_module_is_a_listed_core_or_imports_something_forbidden_to_cores() -> None:
    """So that a pure module cannot stay out of the list, where nothing keeps it pure."""
    forgotten = [
        module
        for module, path in modules().items()
        if module.startswith(tuple(f"pubsub.{room}." for room in ROOMS))
        and path.stem != "__init__"
        and not any(module == core or module.startswith(f"{core}.") for core in CORES["source_modules"])
        and not impure(module)
    ]
    assert forgotten == [], "add them to the contract on cores in pyproject.toml"


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Groups in which each reaches every other, of two or more (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def test_no_further_module_is_in_a_circle_of_imports() -> None:
    known = modules().keys()
    arrows = {module: set(imports(module) & known - {module}) for module in known}
    found: dict[str, int] = {}
    for circle in circles(arrows):
        for module in circle:
            room = ".".join(module.split(".")[:2])
            found[room] = found.get(room, 0) + 1
    assert found == CIRCLES, f"these go round: {circles(arrows)}; where there are fewer now, say so in CIRCLES"


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


def test_folders_import_in_one_direction() -> None:
    def room(module: str) -> str:
        return ".".join(module.split(".")[:2])

    arrows: dict[str, set[str]] = {}
    for module in modules():
        if module != "pubsub":
            ours = arrows.setdefault(room(module), set())
            ours |= {room(name) for name in imports(module) if name in modules() and name != "pubsub"} - {room(module)}
    assert circles(arrows) == []
