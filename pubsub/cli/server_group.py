"""`pubsub server …`: every server of a cluster runs `start`, which loads none of the operator's commands.

The operator's commands import the client. They are loaded when one of them is called, or when all are listed.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from pubsub.console.parameters import prepared
from pubsub.server import commands


class ServerGroup(TyperGroup):
    """A group that has `start`, and the other commands of `pubsub.cli.server` once it is asked for them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_all().commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self.commands.get(cmd_name) or _all().commands.get(cmd_name)


def _all() -> Any:
    from pubsub.cli.server import app as whole

    return prepared(whole)


app = typer.Typer(
    cls=ServerGroup, name="server", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
)
app.callback()(commands.server)
app.command()(commands.start)
