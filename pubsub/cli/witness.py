"""`pubsub witness …`: repairs the vote of a proxy about the primary of a server with a standby."""

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
    """Repair a proxy's vote about the primary of a server."""


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
    """Give the only proxy of a cluster its vote back, after it lost its routes file.

    Without the vote the server runs as it is: it cannot change its primary, and it cannot continue without its
    standby. With several proxies this command is not needed, because the others know the earlier promises. Both
    members must be up.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        view.address_of(server)
        if not _voteless(view, server):
            console.report(as_json, {"server": server, "reset": False}, f"every proxy has a vote on {server}")
            return
        confirm(
            f"The proxy believes the primary of {server} about the last primary and the members in sync. Do this only"
            " if no other member is serving where this host cannot reach it.",
            yes,
        )
        _tell(found, view, server)
        found.wait(
            lambda: not _voteless(found.look(), server), "reset", server, again=lambda: _tell(found, view, server)
        )
    console.report(as_json, {"server": server, "reset": True}, f"the proxy has a vote on {server} again")


def _tell(found: Operator, view: View, server: str) -> None:
    """Send the reset to the primary. It may need a message of the other member first; then the reset is repeated.

    Raises:
        NotNow: the primary refuses.
    """
    answer = found.operate(server, view, "reset")
    if answer.outcome is Outcome.REFUSED:
        raise NotNow(f"the vote on {server} is not reset: {answer.reason.replace('_', ' ')}")


def _voteless(view: View, server: str) -> list[str]:
    """Return the addresses of the proxies that have no vote on a server."""
    return [
        address
        for address, report in view.answered.items()
        if any(row["server"] == server and not row["votes"] for row in report.get("registers", ()))
    ]
