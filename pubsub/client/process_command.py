"""`pubsub client ID process`: run a command for each message of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Final, Literal

import typer

from pubsub import console
from pubsub.base.plurals import counted
from pubsub.client.group_commands import Group
from pubsub.client.inputs import opened_client
from pubsub.client.running_commands import CommandFailed, Commands, Stopped
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import DataLoss, Unavailable

CALL_SECONDS: Final = 0.5
"""Longest wait of one call for a message, and so for a signal to be noticed."""

CALL_MESSAGES: Final = 100
"""Most messages of one call with several commands at a time."""


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND", help="Program that handles one message, with its arguments.")
]
Count = Annotated[
    int | None, typer.Option("--count", min=1, metavar="N", help="End after so many messages; default: no limit.")
]
Idle = Annotated[
    float | None,
    typer.Option(
        "--idle", min=0, max=1e9, metavar="SECONDS", help="End after this time without a message; default: never."
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=256, metavar="N", help="Number of commands that run side by side.")
]
Hold = Annotated[
    Literal["all", "key", "none"],
    typer.Option("--hold", help="Messages that wait behind one that comes again."),
]
HandlerTimeout = Annotated[
    float | None,
    typer.Option(
        "--handler-timeout",
        min=0.001,
        max=1e9,
        metavar="SECONDS",
        help="End COMMAND after this time; default: no limit.",
    ),
]
Later = Annotated[
    float,
    typer.Option("--later", min=0, max=7_776_000, metavar="SECONDS", help="Time until a message comes again after 75."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the number of messages as JSON.")]


def process(
    loaded: Loaded[ClientSettings],
    ctx: typer.Context,
    topic: Topic,
    command: Command,
    group: Group = None,
    count: Count = None,
    idle: Idle = None,
    concurrency: Concurrency = 1,
    hold: Hold = "all",
    handler_timeout: HandlerTimeout = None,
    later: Later = 60.0,
    as_json: AsJson = False,
) -> None:
    """Run COMMAND for each message of TOPIC, with the message on its standard input.

    The client must be subscribed. With --group it joins that consumer group, and takes a share of its messages. Each is
    claimed before COMMAND begins, so no other member begins it meanwhile.

    Exit code 0 of COMMAND: the message is done. 75: it comes again after --later. 65: it is a dead letter at once.
    Another code, a signal or --handler-timeout: it comes again, and after --handler-attempts tries, or those of the
    group, it is a dead letter.
    Output of COMMAND goes to the output of this command.

    COMMAND gets these variables. PUBSUB_MESSAGE is the ID of the message. PUBSUB_MESSAGE_KEY, _HEADERS (JSON), _TOPIC,
    _PUBLISHER, _COUNTER and _STAMP describe it. PUBSUB_MESSAGE_ATTEMPTS is 1 in the first try. PUBSUB_MESSAGE_DOUBTFUL
    is 1 if the message may have been handled before without this count, otherwise empty. With a group,
    PUBSUB_MESSAGE_GROUP and, if it is keyed, PUBSUB_MESSAGE_PART.

    SIGTERM and Ctrl-C go to COMMAND, too, and no further message begins. If COMMAND ends by the signal, its message
    comes again, and the try is no failure. A second signal kills COMMAND. Effects of COMMAND are not undone.
    """
    commands = Commands(command, handler_timeout, later, group or "")
    most = 1 if concurrency == 1 else CALL_MESSAGES
    with opened_client(ctx, loaded, topic, new=group is not None) as client, commands.signals():
        if group is not None:
            client.subscribe(topic, group=group)

        def step(left: int) -> int:
            return client.process(
                topic, commands.handle, CALL_SECONDS, min(left, most), hold, group=group, claim="before",
                concurrency=concurrency,
            )  # fmt: skip

        _take(step, commands, count, idle)
    facts = {"client": ctx.obj, "topic": topic, "handled": commands.ended}
    console.report(as_json, facts, f"handled {counted(commands.ended, 'message')} of {topic}")


def _take(step: Callable[[int], int], commands: Commands, count: int | None, idle: float | None) -> None:
    """Take messages until `count` commands have ended, none came for `idle` seconds, or a signal asks to stop.

    Args:
        step: takes up to so many messages, waits for a short time for the first one, and returns their number.
    """
    since = time.monotonic()
    while not commands.stopping and (count is None or commands.ended < count):
        try:
            taken = step(CALL_MESSAGES if count is None else count - commands.ended)
        except CommandFailed:  # The client has logged it.
            taken = 1
        except Stopped:
            return
        except (DataLoss, Unavailable) as error:  # The next call continues.
            console.complain(str(error))
            taken = 0
        now = time.monotonic()
        if taken:
            since = now
        elif idle is not None and now - since >= idle:
            return


def add_to(app: typer.Typer) -> None:
    """Add the command to `pubsub client ID`."""
    app.command()(takes_settings(ClientSettings)(process))
