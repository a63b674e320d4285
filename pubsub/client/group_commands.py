"""Options and commands of a member of a consumer group: `pubsub client ID subscribe --group` and `leave`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from pubsub import console
from pubsub.client.core.outcomes import NotBegun
from pubsub.client.inputs import opened_client
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError

if TYPE_CHECKING:
    from pubsub.client import Client, Message, Transaction
    from pubsub.client.writing import FileTarget, StreamTarget

Step = Callable[[int, float], int]
"""Takes up to so many messages, waits for the first one for so many seconds, and returns their number."""

Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Share the topic with the other members of this group.")
]
Mode = Annotated[
    Literal["shared", "keyed"] | None,
    typer.Option("--mode", help="Of a new group: keyed keeps the order of each message key. [shared]"),
]
Parts = Annotated[
    int | None, typer.Option("--parts", metavar="N", help="Of a new keyed group: number of its parts. [256]")
]
OnLost = Annotated[
    Literal["wait", "redeliver"] | None,
    typer.Option("--on-lost", help="Of a new group: what becomes of the claims of a silent member. [wait]"),
]
LostSeconds = Annotated[
    float | None,
    typer.Option("--lost-seconds", metavar="SECONDS", help="Of a new group: silence before redeliver. [600]"),
]
Attempts = Annotated[
    int | None,
    typer.Option("--attempts", metavar="N", help="Of a new group: failures before a message is a dead letter. [5]"),
]


def join(
    client: Client, topic: str, group: str | None, start: str | None, *, fresh: bool, values: dict[str, Any]
) -> None:
    """Subscribe to a topic, or join a group of it if one is named.

    Args:
        start: text of --start; None: the end of the topic.
        fresh: give up the present subscription.
        values: the values of a new group; None for one that is not given.

    Raises:
        CallerError: a value is not allowed, or needs a group.
    """
    from pubsub.client.flows.group_waits import GroupOptions, make_wish
    from pubsub.client.seeking import subscribe_from
    from pubsub.client.starts import parse_start_text

    named = [name for name, value in values.items() if value is not None]
    if group is None:
        if named:
            raise CallerError(
                f"--{named[0].replace('_', '-')} belongs to a consumer group: name it, too, by --group NAME"
            )
        subscribe_from(client, topic, start, fresh=fresh)
        return
    if fresh:
        raise CallerError(
            f"--fresh drops a backlog, and that of a group belongs to all members: pubsub group end {topic} {group}"
        )
    begins = None if start is None else parse_start_text(start, time.time(), "--start")
    wish = make_wish(begins, cast("GroupOptions", values))
    client._run(client._calls.group_waits.subscribe(topic, group, wish, None))


class _NotWritten(NotBegun, BaseException):
    """The output failed; no attempt counts.

    Args:
        error: its error.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


def check_batch(group: str | None, batch: int | None) -> None:
    """Check that --batch is given without a group.

    Raises:
        CallerError: it is given with one.
    """
    if group is not None and batch is not None:
        raise CallerError("--batch does not go with --group: a group's messages are acknowledged one by one")


def take_from(
    client: Client, topic: str, group: str, target: StreamTarget | FileTarget, text: Callable[[Message], bytes]
) -> Step:
    """Join a group, and return a step that writes and then acknowledges its messages, each by itself.

    Each is claimed before it is written, so no other member writes it meanwhile. If the output fails, the step raises
    its error, and the message comes again, at any member.

    Args:
        text: makes the output of a message.
    """
    client.subscribe(topic, group=group)

    def write(message: Message, transaction: Transaction) -> None:
        try:
            target.write(text(message), transaction)
        except Exception as error:
            raise _NotWritten(error) from error

    def step(most: int, seconds: float) -> int:
        try:
            taken = client.process(topic, write, seconds, most, group=group, claim="before")
        except _NotWritten as error:
            raise error.error from None
        if target.fsync:  # Otherwise a power cut may find the complete file without the commits of its messages.
            with client._session.entered():
                client._session.sync()
        return taken

    return step


@takes_settings(ClientSettings)
def leave(
    loaded: Loaded[ClientSettings],
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="The group to leave.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Leave a consumer group, and give back all that this client holds.

    The client first reports the messages that it has done, also those of a killed process. So this ends the doubt about
    a worker that is not started again. A later process or get joins the group again.
    """
    with opened_client(ctx, loaded, topic) as client:
        client.leave(topic, group=group)
    facts = {"client": ctx.obj, "topic": topic, "left": group}
    console.report(as_json, facts, f"{ctx.obj} has left group {group} of {topic}")


def add_to(app: typer.Typer) -> None:
    """Add the command to `pubsub client ID`."""
    app.command()(leave)
