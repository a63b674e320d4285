"""Cores do not depend on the order of a set, which is another one in each process: a seed would be several histories.

Seen are sets written out, made by `set` or by operators on dicts' keys, and names and attributes that some core
annotates as a set. What only asks whether something is in a set, or how many are, may go through it in any order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.scripts.test_imports import CORES, modules

ORDERLESS = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum", "update", "issubset", "isdisjoint"}
SETS = {"set", "frozenset", "AbstractSet"}


def cores() -> dict[str, ast.Module]:
    """The cores' modules, parsed."""
    return {
        module: ast.parse(path.read_text())
        for module, path in modules().items()
        if any(module == core or module.startswith(f"{core}.") for core in CORES["source_modules"])
    }


def is_set_type(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).partition("[")[0] in SETS


def annotated(trees: list[ast.Module]) -> set[str]:
    """Attributes that are sets, and functions and properties that return one, wherever something is so named."""
    sets, others = set(), set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                (sets if is_set_type(node.annotation) else others).add(node.target.attr)
            elif isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        (sets if is_set_type(one.annotation) else others).add(one.target.id)
            elif isinstance(node, ast.FunctionDef):
                (sets if is_set_type(node.returns) else others).add(node.name)
    return sets - others


class Function:
    """One function: which of its names are sets, and where it goes through one."""

    def __init__(self, node: ast.AST, attributes: set[str]) -> None:
        self._node, self._attributes = node, attributes
        self._names: set[str] = set()
        for inner in [*ast.walk(node)] * 2:  # What is assigned from a parameter comes before it there.
            if isinstance(inner, ast.arg) and is_set_type(inner.annotation):
                self._names.add(inner.arg)
            elif (
                isinstance(inner, ast.AnnAssign)
                and isinstance(inner.target, ast.Name)
                and is_set_type(inner.annotation)
            ):
                self._names.add(inner.target.id)
            elif isinstance(inner, ast.Assign):
                for target, value in self._assigned(inner):
                    if isinstance(target, ast.Name) and self._is_set(value):
                        self._names.add(target.id)

    @staticmethod
    def _assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self._names
            case ast.Attribute(attr=name):
                return name in self._attributes
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                return name in SETS or name in self._attributes
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return any(self._is_set(one) or ast.unparse(one).endswith(".keys()") for one in (left, right))
        return False

    def ordered(self) -> Iterator[ast.expr]:
        """The sets that are gone through where the order may matter."""
        harmless = {
            id(argument)
            for call in ast.walk(self._node)
            if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in ORDERLESS
            for argument in call.args
        }
        for node in ast.walk(self._node):
            if isinstance(node, ast.For | ast.AsyncFor):
                places = [node.iter]
            elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp) and id(node) not in harmless:
                places = [one.iter for one in node.generators]
            elif isinstance(node, ast.Starred):
                places = [node.value]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in {
                "dict", "enumerate", "extend", "iter", "join", "list", "map", "tuple", "zip"
            }:  # fmt: skip
                places = node.args
            else:
                continue
            yield from (place for place in places if self._is_set(place))


def findings(trees: dict[str, ast.Module]) -> list[str]:
    attributes = annotated(list(trees.values()))
    found = set()
    for module, tree in trees.items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for place in Function(function, attributes).ordered():
                    found.add(f"{module}:{place.lineno}: {ast.unparse(place)}")
    return sorted(found)


def test_no_core_iterates_over_a_set_in_its_order() -> None:
    assert findings(cores()) == [], "sort them, or keep them in a dict"


def test_an_iteration_over_a_set_is_found() -> None:
    program = """
class One:
    marked: set[str]

    def right(self, names: set[str]) -> list[str]:
        return [*sorted(names), *sorted(self.marked - names), str(len(self.marked)), str(any(x for x in names))]

    def wrong(self, names: set[str], known: dict[str, int]) -> None:
        for _ in self.marked: ...
        ready, names = names, set()
        list(ready)
        ",".join({"a", "b"})
        [x for x in known.keys() | names]
"""
    assert findings({"m": ast.parse(program)}) == [
        "m:11: ready", "m:12: {'a', 'b'}", "m:13: known.keys() | names", "m:9: self.marked",
    ]  # fmt: skip
