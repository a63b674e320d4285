"""Options that the commands of services share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from pubsub.config.addresses import check_address
from pubsub.console.options import KeyFile as KeyFile  # noqa: PLC0414  one of the options
from pubsub.errors import ConfigurationError

Broker = Annotated[list[str], typer.Option("--broker", metavar="ADDR", help="Address of the queue, broker or server.")]
BrokerKey = Annotated[
    list[str] | None, typer.Option("--broker-key", metavar="KEY", help="Its public key, pk_…, where it has one.")
]
Authorized = Annotated[
    str | None, typer.Option("--authorized", metavar="FILE", help="Who may enter; only those then, and with a key.")
]
AuditFile = Annotated[
    str | None, typer.Option("--audit-file", metavar="FILE", help="Where it is noted who enters and is denied what.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen for other hosts without keys.")]
Advertise = Annotated[
    str | None,
    typer.Option("--advertise", metavar="ADDR", help="Of freelance3: what callers connect to, if it is not --bind."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON.")]
HEARTBEAT_SECONDS_MIN: Final = 0.01
HEARTBEAT_SECONDS_MAX: Final = 3_600.0

Heartbeat = Annotated[
    float,
    typer.Option("--heartbeat", metavar="SECONDS", help="Between heartbeats.", min=HEARTBEAT_SECONDS_MIN),
]
HandlerTimeout = Annotated[
    float | None,
    typer.Option("--handler-timeout", metavar="SECONDS", help="COMMAND is killed after them.", min=0.001, max=1e9),
]
WorkersHeartbeat = Annotated[
    float | None,
    typer.Option(
        "--heartbeat",
        metavar="SECONDS",
        help="Between heartbeats, as of the queue or broker; else 2.5, of paranoid 1.",
        min=HEARTBEAT_SECONDS_MIN,
        max=HEARTBEAT_SECONDS_MAX,
    ),
]
WorkersLiveness = Annotated[
    int | None,
    typer.Option("--liveness", metavar="N", help="Silent heartbeats until it counts as dead; else 3.", min=1),
]
Liveness = Annotated[int, typer.Option("--liveness", metavar="N", help="Silent heartbeats until dead.", min=1)]


def checked(addresses: Sequence[str], option: str, *, bind: bool = False) -> list[str]:
    """Addresses as sockets take them.

    Args:
        addresses: as given.
        option: by which, for an error's text.
        bind: they are to listen on.

    Raises:
        ConfigurationError: one of them is none.
    """
    found = []
    for address in addresses:
        try:
            found.append(check_address(address, bind=bind))
        except ValueError as error:
            raise ConfigurationError(f"{option} {address!r} is not allowed; allowed: {error}") from None
    return found
