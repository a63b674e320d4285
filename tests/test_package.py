"""The names that the package exports: completion finds all of them, and every error in a docstring, and its version."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from importlib.metadata import version
from types import ModuleType

import pytest

import pubsub
import pubsub.client.errors
import pubsub.errors
import pubsub.http.errors
import pubsub.services.errors

KNOWN = {
    name
    for module in (pubsub.errors, pubsub.client.errors, pubsub.http.errors, pubsub.services.errors)
    for name, thing in vars(module).items()
    if inspect.isclass(thing) and issubclass(thing, pubsub.errors.PubsubError)
}


def docstrings(thing: object) -> list[str]:
    """Of a class those of its public methods, too."""
    members = inspect.getmembers(thing) if inspect.isclass(thing) else []
    public = [member for name, member in members if not name.startswith("_") or name == "__init__"]
    return [inspect.getdoc(each) or "" for each in (thing, *public)]


@pytest.mark.parametrize("package", ["pubsub", "pubsub.client", "pubsub.http", "pubsub.messenger"])
def test_every_error_that_a_public_docstring_names_is_exported(package: str) -> None:
    module = importlib.import_module(package)
    offered = {*module.__all__, *pubsub.__all__}
    missing = {
        f"{name}: {word}"
        for name in module.__all__
        for text in docstrings(getattr(module, name))
        for word in re.findall(r"\b[A-Z]\w+", text)
        if word in KNOWN and word not in offered
    }
    assert not missing


def test_all_errors_are_exported() -> None:
    for module in (pubsub.errors, pubsub.client.errors, pubsub.services.errors):
        own = {name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__}
        assert own & KNOWN - {"NoSuchClient"} <= set(pubsub.__all__)


@pytest.mark.parametrize(
    "module", [pubsub, importlib.import_module("pubsub.client"), importlib.import_module("pubsub.http")]
)
def test_all_exported_names_are_found_by_completion(module: ModuleType) -> None:
    assert {*module.__all__, "__all__"} <= set(dir(module))


@pytest.mark.parametrize("package", ["pubsub", "pubsub.client", "pubsub.http"])
def test_a_type_checker_finds_exactly_the_exported_names(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(inspect.getsource(module))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for name in node.names:
            assert name.name == name.asname, "an import without `as` is not offered to type checkers"
            found[name.name] = node.module
    assert sorted(found) == sorted(module.__all__)
    for name, source in found.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(source)), name)


def test_the_types_of_arguments_and_results_of_a_client_are_exported() -> None:
    assert {"AsyncPublisher", "BatchTicket", "Headers", "NotAllowed", "KeyRefused"} <= set(pubsub.__all__)


def test_the_version_is_that_of_the_distribution() -> None:
    assert pubsub.__version__ == version("pirate-pubsub")
    assert "__version__" in dir(pubsub)
