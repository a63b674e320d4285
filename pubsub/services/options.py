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
    list[str] | None,
    typer.Option("--broker-key", metavar="KEY", help="Public key of the other side, pk_…, if it has one."),
]
Authorized = Annotated[
    str | None,
    typer.Option("--authorized", metavar="FILE", help="Access list; without a key in it nobody may connect."),
]
AuditFile = Annotated[
    str | None, typer.Option("--audit-file", metavar="FILE", help="File for records of connections and denials.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen for other hosts without keys.")]
Advertise = Annotated[
    str | None,
    typer.Option("--advertise", metavar="ADDR", help="Of freelance3: address that callers use, if not --bind."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON.")]
HEARTBEAT_SECONDS_MIN: Final = 0.01
HEARTBEAT_SECONDS_MAX: Final = 3_600.0

Heartbeat = Annotated[
    float,
    typer.Option("--heartbeat", metavar="SECONDS", help="Interval between heartbeats.", min=HEARTBEAT_SECONDS_MIN),
]
HandlerTimeout = Annotated[
    float | None,
    typer.Option(
        "--handler-timeout", metavar="SECONDS", help="Time limit of COMMAND, which is killed then.", min=0.001, max=1e9
    ),
]
WorkersHeartbeat = Annotated[
    float | None,
    typer.Option(
        "--heartbeat",
        metavar="SECONDS",
        help="Interval between heartbeats, as at the queue or broker. Default: 2.5, or 1 of kind paranoid.",
        min=HEARTBEAT_SECONDS_MIN,
        max=HEARTBEAT_SECONDS_MAX,
    ),
]
WorkersLiveness = Annotated[
    int | None,
    typer.Option(
        "--liveness",
        metavar="N",
        help="Silent heartbeats after which the queue or broker counts as dead. Default: 3.",
        min=1,
    ),
]
Liveness = Annotated[
    int, typer.Option("--liveness", metavar="N", help="Silent heartbeats after which a worker counts as dead.", min=1)
]


def checked(addresses: Sequence[str], option: str, *, bind: bool = False) -> list[str]:
    """Return addresses in the form that sockets take.

    Args:
        option: name of the option, for error messages.
        bind: the addresses are for listening.

    Raises:
        ConfigurationError: an address is invalid.
    """
    found = []
    for address in addresses:
        try:
            found.append(check_address(address, bind=bind))
        except ValueError as error:
            raise ConfigurationError(f"{option} {address!r} is not allowed; allowed: {error}") from None
    return found
