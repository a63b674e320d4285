"""Options of the interpreter that careful projects and small images use: warnings as errors, no docstrings."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli.app import LAZY

PACKAGE = Path(__file__).parents[1] / "pubsub"

HELPS = """
import json
import sys

import typer

from pubsub.cli.app import app
from pubsub.console.parameters import prepared


def helps(command, name):
    context = typer.Context(command, info_name=name)
    found = {name: command.get_help(context)}
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        found |= helps(command.get_command(context, each), f"{name} {each}")
    return found


print(json.dumps(helps(prepared(app), "pubsub")))
"""

CLUSTER = """
from pubsub import embedded
with embedded() as cluster, cluster.client("a") as client:
    client.subscribe("t")
    client.put("t", b"1")
    print(client.get("t", timeout=30).body)
"""


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_help_is_the_same_without_docstrings() -> None:
    usual, bare = json.loads(run("-c", HELPS)), json.loads(run("-OO", "-c", HELPS))
    assert {f"pubsub {name}" for name in LAZY} <= usual.keys()
    assert bare == usual


@pytest.mark.slow
def test_nothing_is_opened_without_an_encoding() -> None:
    assert run("-X", "warn_default_encoding", "-W", "error", "-c", CLUSTER) == "b'1'\n"


def unspecified(call: ast.Call) -> bool:
    """Whether a call opens text and leaves its encoding to the machine's locale."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    named: dict[str | None, Any] = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in named:
        return False
    if name in {"read_text", "write_text"}:
        return True
    if any(isinstance(named.get(each), ast.Constant) and named[each].value for each in ("text", "universal_newlines")):
        return True
    if name not in {"open", "fdopen", "NamedTemporaryFile", "TextIOWrapper"}:
        return False
    own = isinstance(call.func, ast.Attribute) and not (
        isinstance(call.func.value, ast.Name) and call.func.value.id in {"os", "io", "gzip"}
    )
    places = call.args if own else call.args[1:]
    mode = named.get("mode", places[0] if places else None)
    if not isinstance(mode, ast.Constant) or not isinstance(mode.value, str):
        return False  # No file: what opens an engine, a disk, flags of the operating system.
    return "b" not in mode.value


def test_every_text_file_and_pipe_of_the_package_names_its_encoding() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and unspecified(node)
    ]
    assert not found
