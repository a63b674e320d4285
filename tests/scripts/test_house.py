"""How large a file, a class and a function may be, and that rooms import in one direction, within each folder too."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.scripts.test_imports import ROOT, circles, imports, modules

FILE_LINES_MAX = 450
CLASS_LINES_MAX = 350
FUNCTION_LINES_MAX = 50

LARGER: dict[str, int] = {}
"""What is larger than its limit, and how many lines at most: a file by its path, a class or function behind its colon.

Each may only shrink, and what has come within its limit leaves the list.
"""

ROOMS_THAT_GO_ROUND: dict[str, set[str]] = {}
"""Folders whose rooms import each other in a circle, with those rooms; a folder leaves the list when none does."""


@cache
def sizes() -> dict[str, tuple[int, int]]:
    """How many lines each file, class and function of the package has, and how many it may have."""
    return {name: size for path in modules().values() for name, size in sizes_in(path, ROOT / "pubsub").items()}


def sizes_in(path: Path, root: Path) -> dict[str, tuple[int, int]]:
    """The same of one file and what is in it, by its path under a root."""
    name, text = path.relative_to(root).as_posix(), path.read_text()
    tree = ast.parse(text)
    found = {name: (text.count("\n"), FILE_LINES_MAX)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found[f"{name}:{node.name}"] = (lines(node), CLASS_LINES_MAX)
    for function, length in functions(tree, ""):
        found[f"{name}:{function}"] = (length, FUNCTION_LINES_MAX)
    return found


def functions(node: ast.AST, within: str) -> list[tuple[str, int]]:
    """Every function under a node by its qualified name, and its lines."""
    found = []
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{within}.{child.name}" if within else child.name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((name, lines(child)))
        found += functions(child, name)
    return found


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_no_file_class_or_function_is_larger_than_its_limit() -> None:
    larger = {name: length for name, (length, limit) in sizes().items() if length > limit}
    beyond = {name: length for name, length in larger.items() if length > LARGER.get(name, 0)}
    assert beyond == {}, (
        f"split them: {FILE_LINES_MAX} lines a file, {CLASS_LINES_MAX} a class, {FUNCTION_LINES_MAX} a function"
    )
    assert LARGER.keys() - larger.keys() == set(), "these have come within their limits; take them out of LARGER"


def test_no_file_of_tests_is_larger_than_one_of_the_package_may_be() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")
    }
    larger = {name for name, length in lengths.items() if length > FILE_LINES_MAX}
    assert larger == set(), f"split them along their subjects: {FILE_LINES_MAX} lines a file"


def test_no_class_or_function_of_the_simulation_is_larger_than_one_of_the_package_may_be() -> None:
    found = [sizes_in(path, ROOT) for path in (ROOT / "tests" / "simulation").rglob("*.py")]
    larger = {name for one in found for name, (length, limit) in one.items() if length > limit}
    assert larger == set(), f"split them: {CLASS_LINES_MAX} lines a class, {FUNCTION_LINES_MAX} a function"


def folders() -> list[str]:
    """Every package, by its dotted name."""
    return sorted(name for name, path in modules().items() if path.name == "__init__.py")


@pytest.mark.parametrize("folder", folders())
def test_the_modules_of_a_folder_import_in_one_direction(folder: str) -> None:
    """A room is a module or a folder right in this one; imports for the type checker count."""

    def room(module: str) -> str:
        return ".".join(module.split(".")[: folder.count(".") + 2])

    arrows: dict[str, set[str]] = {}
    for module in modules():
        if module.startswith(f"{folder}."):
            names = {name for name in imports(module) if name in modules() and name.startswith(f"{folder}.")}
            arrows.setdefault(room(module), set()).update({room(name) for name in names} - {room(module)})
    assert set().union(*circles(arrows)) == ROOMS_THAT_GO_ROUND.get(folder, set())


def test_a_function_within_another_is_measured_too() -> None:
    text = "class Thing:\n    def outer(self):\n        def inner():\n            return 1\n        return inner\n"
    assert functions(ast.parse(text), "") == [("Thing.outer", 4), ("Thing.outer.inner", 2)]
