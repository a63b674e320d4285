"""Breakages of the rules of a client's state in a database (docs/explanation/databases.md)."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import pubsub.client.session
import pubsub.client.storage.postgres.life
import pubsub.client.storage.postgres.outcomes
from tests.simulation.breakages.room import Room, substitute
from tests.simulation.database import engine

breakage = Room("databases: ")

_life = pubsub.client.storage.postgres.life
_Committing = pubsub.client.storage.postgres.outcomes.Committing


def _without(stack: contextlib.ExitStack, module: Any, name: str, *changes: tuple[str, str]) -> None:
    """Change the text of a function of a module."""
    text = inspect.getsource(getattr(module, name))
    for before, after in changes:
        if before not in text:
            raise AttributeError(f"{name} has no {before!r}")
        text = text.replace(before, after)
    space = dict(vars(module))
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True, flags=0x1000000), space)
    substitute(stack, module, name, space[name])


@breakage("the life is counted for the token")
def _(stack: contextlib.ExitStack) -> None:
    count = "str(0 if found is None else found[0])"
    _without(stack, _life, "begin", ("secrets.token_hex(16)", count))


@breakage("a plain read after a lost COMMIT")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, _life, "lock_again", lambda *arguments: None)


@breakage("check first, then write")
def _(stack: contextlib.ExitStack) -> None:
    """The life is checked when the transaction begins, and not when it ends."""
    begin = engine.Database.begin

    def checked(self: Any, backend: Any, mark: str = "") -> None:
        begin(self, backend, mark)
        backend.in_force = dict(self.execute(backend, "select client, life from pubsub.state")[0])

    def step(database: Any, backend: Any, client: str, life: str, number: int, mark: str) -> None:
        if backend.in_force.get(client) != life:
            raise engine.Over("another life has the client open, or commits are missing")
        if mark and backend.mark != mark:
            raise engine.Ended("a statement ended the transaction of the client")
        backend.durable = True
        database.update("update pg_state set commits = ? where client = ?", (number, client))

    substitute(stack, engine.Database, "begin", checked)
    substitute(stack, engine, "step", step)


@breakage("no life check")
def _(stack: contextlib.ExitStack) -> None:
    _without(stack, engine, "step", (" and life = ?", ""), ("client, life, number)", "client, number)"))


@breakage("no number check")
def _(stack: contextlib.ExitStack) -> None:
    _without(stack, engine, "step", (" and commits = ? - 1", ""), ("life, number)", "life)"))


@breakage("no mark check")
def _(stack: contextlib.ExitStack) -> None:
    _without(stack, engine, "step", ("if mark and", "if False and"))


@breakage("a commit may be lost in a crash")
def _(stack: contextlib.ExitStack) -> None:
    _without(stack, engine, "step", ("backend.durable = True", "pass"))


@breakage("an older database is taken as it is")
def _(stack: contextlib.ExitStack) -> None:
    """A process whose connection was lost goes on where it is."""
    substitute(stack, _Committing, "_compare", lambda self, found: None)


@breakage("a look does not end the life")
def _(stack: contextlib.ExitStack) -> None:
    _without(
        stack,
        _life,
        "end",
        ("update pubsub.state set life = %s where", "update pubsub.state set lives = lives + length(%s) where"),
    )


@breakage("an answer shows a copy to a process whose life is over")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, pubsub.client.session.Session, "__init__", _unchecked(pubsub.client.session.Session.__init__))


def _unchecked(made: Any) -> Any:
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        self.core.check_life = lambda: None

    return init
