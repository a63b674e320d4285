"""Reads the help of commands from their source if Python has dropped docstrings (`-OO`, PYTHONOPTIMIZE=2)."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import typer

_NO_SOURCE: Final = "(No help: Python runs without docstrings, -OO, and the source file with the help is missing.)"


def restore(app: typer.Typer) -> None:
    """Give each command of an application its help text back."""
    if sys.flags.optimize < 2:
        return
    functions = [command.callback for command in app.registered_commands]
    if app.registered_callback is not None:
        functions.append(app.registered_callback.callback)
    for function in functions:
        if function is not None and not function.__doc__:
            function.__doc__ = docstring(function)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            restore(group.typer_instance)


def docstring(function: Callable[..., Any]) -> str | None:
    """Return a function's docstring, from its source if Python has dropped it. None: it has none."""
    if function.__doc__ or sys.flags.optimize < 2:
        return function.__doc__
    return _docstrings(function.__module__).get(function.__name__, _NO_SOURCE)


@cache
def _docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of a module's functions by name, empty if there is no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError):
        return {}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions}
