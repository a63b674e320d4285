"""`pubsub witness …`: what is done about a proxy's vote on who is primary of a server with a standby."""

from __future__ import annotations

from typing import Annotated

import typer

from pubsub import console
from pubsub.cli.operating import Operator, View, cluster, confirm
from pubsub.cli.topic import AsJson, Patience, Wait, Yes
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, takes_settings
from pubsub.errors import NotNow
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import check_id

app = typer.Typer(name="witness", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.callback()
def witness() -> None:
    """The proxies' votes on who is primary of a server with a standby."""


@app.command()
@takes_settings(ClientSettings, REACHING)
def reset(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="ID of a server with a standby.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give the only proxy its vote back, after it has lost its routes file.

    Until then the server goes on as it is, and can neither change its primary nor go on without its standby. With
    several proxies this is not needed: the others tell what that one had promised. Both members must be up.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        view.address_of(server)
        if not _voteless(view, server):
            console.report(as_json, {"server": server, "reset": False}, f"every proxy has a vote on {server}")
            return
        confirm(
            f"The proxy takes the word of {server}'s primary for who was primary last, and who is in sync. Do this only"
            " where no other member serves that cannot be reached from here.",
            yes,
        )
        _tell(found, view, server)
        found.wait(
            lambda: not _voteless(found.look(), server), "reset", server, again=lambda: _tell(found, view, server)
        )
    console.report(as_json, {"server": server, "reset": True}, f"the proxy has a vote on {server} again")


def _tell(found: Operator, view: View, server: str) -> None:
    """Tell the primary, which may have to hear the other member first: then it is told again.

    Raises:
        NotNow: it will not do it.
    """
    answer = found.operate(server, view, "reset")
    if answer.outcome is Outcome.REFUSED:
        raise NotNow(f"the vote on {server} is not reset: {answer.reason.replace('_', ' ')}")


def _voteless(view: View, server: str) -> list[str]:
    """The proxies that have no vote on a server, by their addresses."""
    return [
        address
        for address, report in view.answered.items()
        if any(row["server"] == server and not row["votes"] for row in report.get("registers", ()))
    ]
