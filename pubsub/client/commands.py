"""`pubsub client ID …`: one operation of a client, from a shell.

Each command opens the client's state directory, does one thing, and closes it. So a script of such commands is one
client, with the same guarantees as a program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from pubsub import console
from pubsub.base.plurals import counted
from pubsub.client import group_commands, letter_commands, process_command
from pubsub.client.call_commands import add_to
from pubsub.client.group_commands import (
    Attempts,
    Group,
    LostSeconds,
    Mode,
    OnLost,
    Parts,
    Step,
    check_batch,
    join,
    take_from,
)
from pubsub.client.inputs import (
    Delay,
    DeliverAt,
    HeaderOption,
    KeyOption,
    Ttl,
    due_options,
    headers_of,
    message_of,
    opened_client,
    put_lines,
    readable,
    source,
)
from pubsub.client.message_fields import written
from pubsub.client.seeking import StartOption, seek
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError, Unavailable

if TYPE_CHECKING:
    from pubsub.client import Batch, Client, Message, Transaction
    from pubsub.client.writing import FileTarget, StreamTarget


class ClientGroup(TyperGroup):
    """Accepts `pubsub client ID --help` as well as `pubsub client --help`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move a --help after the ID to the front.

        Raises:
            CallerError: the ID is missing.
        """
        if len(args) > 1 and args[0] in self.commands and args[1] not in {*self.commands, "--help"}:
            raise CallerError(f"the client's ID comes first: pubsub client ID {args[0]} {args[1]} …")
        return super().parse_args(ctx, ["--help"] if args[1:2] == ["--help"] else args)


app = typer.Typer(
    name="client", cls=ClientGroup, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
)

QUESTION_SECONDS: Final = 0.25
"""Time limit of a get with --wait 0: at least one request must reach the service."""

ANSWER_SECONDS: Final = 5.0
"""Minimum time for an answer, even if --wait is shorter: a busy service is not an unreachable one."""

BATCH: Final = 100
"""Messages that get writes to a stream before it acknowledges them; as many may be written again."""

FILE_BATCH: Final = 10_000
"""Messages that get writes to a file before it acknowledges them; a file gets no message twice."""

OF_PUTS: Final = frozenset({"outbox_bytes_max", "window", "publisher_records", "publisher_bytes", "linger_seconds"})
"""Settings that have an effect in puts only."""

OF_GETS: Final = frozenset({"prefetch_records", "prefetch_bytes"})
"""Settings that have an effect in gets only."""

OF_HANDLERS: Final = frozenset({"handler_attempts", "retry_first_seconds", "retry_longest_seconds", "dead_letters"})
"""Settings that have an effect in commands with a handler only."""

Settings = Loaded[ClientSettings]

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic: 1-80 printable ASCII characters without space.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def client(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="ID of the client: 1-64 of A-Z a-z 0-9 . _ -")],
) -> None:
    """Subscribe, put, get and more, as the client with this ID.

    The client's state, such as its unfinished puts and its position in each topic, is in a state directory. The
    commands subscribe, put, call and serve make the state of a new client; the others need an existing client. Only one
    process at a time may use an ID. The state belongs to one cluster: do not use it with another one.

    Example: pubsub client alice subscribe orders.
    """
    ctx.obj = name


@app.command()
@takes_settings(ClientSettings)
def subscribe(
    loaded: Settings,
    ctx: typer.Context,
    topic: Topic,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Give up the present subscription and its waiting messages.")
    ] = False,
    start: StartOption = None,
    group: Group = None,
    mode: Mode = None,
    parts: Parts = None,
    on_lost: OnLost = None,
    lost_seconds: LostSeconds = None,
    attempts: Attempts = None,
    as_json: AsJson = False,
) -> None:
    """Receive the messages that are put to TOPIC from now on, or from --start on.

    The command returns when the client is subscribed; get takes the messages. If the cluster still has a subscription
    of this ID, the client continues that subscription with its waiting messages, and --start has no effect. --fresh
    begins a new one instead; seek moves one.

    With --group the client joins a consumer group of the topic, and makes it if there is none. Its members share the
    messages: process --group takes them. The values of a group belong to its maker; others name none, or the same.
    """
    values = {"mode": mode, "parts": parts, "on_lost": on_lost, "lost_seconds": lost_seconds, "attempts": attempts}
    with opened_client(ctx, loaded, topic, new=True) as opened:
        join(opened, topic, group, start, fresh=fresh, values=values)
    facts = {"client": ctx.obj, "subscribed": topic} | ({} if group is None else {"group": group})
    what = f"subscribed to {topic}" if group is None else f"a member of group {group} of {topic}"
    console.report(as_json, facts, f"{ctx.obj} is {what}")


@app.command()
@takes_settings(ClientSettings)
def unsubscribe(loaded: Settings, ctx: typer.Context, topic: Topic, as_json: AsJson = False) -> None:
    """End the subscription to TOPIC. Its waiting messages are given up."""
    with opened_client(ctx, loaded, topic) as opened:
        opened.unsubscribe(topic)
    console.report(as_json, {"client": ctx.obj, "unsubscribed": topic}, f"{ctx.obj} is not subscribed to {topic}")


app.command()(seek)


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write to this file instead of standard output; the file is complete or absent.",
    ),
]


Together = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Messages written before they are acknowledged together; default {BATCH}, with --out {FILE_BATCH:,}.",
    ),
]


@app.command()
@takes_settings(ClientSettings, unused=OF_PUTS | OF_HANDLERS)
def get(
    loaded: Settings,
    ctx: typer.Context,
    topic: Topic,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of messages to take.")] = 1,
    wait: Annotated[
        float, typer.Option(min=0, max=1e9, metavar="SECONDS", help="Longest time to wait for the messages of --count.")
    ] = 1.0,
    out: Out = None,
    batch: Together = None,
    group: Group = None,
    as_json: AsJson = False,
) -> None:
    """Take messages of TOPIC and print them.

    The client must be subscribed. Exit code 3: no message came within --wait. With --group it joins that consumer
    group, and takes a share of its messages. Each is claimed, written and acknowledged by itself.

    The command first writes messages, then acknowledges them. If it is killed or its output fails, the next get writes
    the last batch again. So standard output gets each message at least once. With --out FILE each message arrives
    exactly once: FILE appears when it is complete, and the next get completes the work of a killed one.

    With --count 1 the message is printed unchanged. With a larger count, get adds an end of line to each message that
    has none.

    With --json each message is one line with id, topic, publisher, counter, stamp (microseconds since 1970), body, and
    key and headers if it has any. body_base64, key_base64 or headers_base64 hold values that are not UTF-8.

    To handle each message once in a program, use Client.process in Python.
    """
    from pubsub.client.writing import finish_interrupted

    check_batch(group, batch)
    with opened_client(ctx, loaded, topic, new=group is not None) as opened:
        done = finish_interrupted(opened)
        for path in done:
            console.note(f"{path} is complete now; an earlier get was killed before it finished")
        if out is not None and out.resolve() in done:
            return
        with _target(out, opened) as target:
            text = partial(written, as_json=as_json, alone=count == 1)
            if group is None:
                step = _hand_on(opened, topic, batch or (FILE_BATCH if target.fsync else BATCH), target, text)
            else:
                step = take_from(opened, topic, group, target, text)
            taken = _take(opened, step, count, max(wait, QUESTION_SECONDS))
    if not taken:
        console.complain(f"{topic} has no message for {ctx.obj} within {wait:g} s")
        raise typer.Exit(console.EXIT_NO_MESSAGE)


def _hand_on(
    opened: Client, topic: str, batch: int, target: StreamTarget | FileTarget, text: Callable[[Message], bytes]
) -> Step:
    """Return a step that writes and then acknowledges up to `batch` messages together."""

    def write(messages: Batch, transaction: Transaction) -> None:
        target.write(b"".join(map(text, messages)), transaction)

    def step(most: int, seconds: float) -> int:
        return opened._run(opened._calls.gets.hand_on(topic, min(most, batch), write, seconds, fsync=target.fsync))

    return step


def _take(opened: Client, step: Step, count: int, seconds: float) -> int:
    """Take up to `count` messages until none comes in time; return the number."""
    taken, patience = 0, seconds
    asked = time.monotonic()
    deadline = asked + seconds
    while taken < count:
        try:
            found = step(count - taken, patience)
        except Unavailable:  # Report an empty topic only after an answer of the service, even if --wait is short.
            if time.monotonic() >= asked + min(ANSWER_SECONDS, opened.settings.timeout_seconds):
                raise
            patience = QUESTION_SECONDS  # Not the rest of the wait: a call with a time-out of 0 sends no request.
            deadline = time.monotonic() + QUESTION_SECONDS
            continue
        if not found:
            break
        taken += found
        patience = max(0.0, deadline - time.monotonic())
    return taken


@app.command()
@takes_settings(ClientSettings, unused=OF_GETS | OF_HANDLERS)
def put(
    loaded: Settings,
    ctx: typer.Context,
    topic: Topic,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File with the message; - is standard input.")],
    lines: Annotated[
        bool, typer.Option("--lines", help="Put each line as a message, without its end of line.")
    ] = False,
    header: HeaderOption = None,
    message_key: KeyOption = "",
    delay: Delay = "",
    deliver_at: DeliverAt = "",
    ttl: Ttl = "",
    as_json: AsJson = False,
) -> None:
    """Put a file to TOPIC as one message.

    The command returns when the message is on the server's disk. --header and --message-key go with the message; with
    --lines they go with each message. --delay and --deliver-at say when subscribers receive the message, and --ttl when
    it expires. Example: echo hello | pubsub client bob put orders -.

    Exit code 5: no answer in time. The client keeps the message. The next put on TOPIC, or flush, sends it again, and
    the server stores it once. Exit code 130, with --lines: interrupted. The command prints how many lines were put.
    """
    from pubsub.protocol import check_topic, encode_headers

    check_topic(topic)
    key, headers = os.fsencode(message_key), headers_of(header, ttl)
    encode_headers(headers)
    due = due_options(delay, deliver_at)
    if lines:
        console.end_when_terminated()
        with source(path) as stream, opened_client(ctx, loaded, topic, new=True) as opened:
            done, seconds = put_lines(opened, topic, stream, path, key, headers, due)
        facts = {"client": ctx.obj, "topic": topic, "put": done, "seconds": round(seconds, 3)}
        console.report(as_json, facts, f"put {counted(done, 'message')} to {topic} in {seconds:.2f} s")
        return
    with source(path) as stream, readable(path):
        body = message_of(stream)
    with opened_client(ctx, loaded, topic, new=True) as opened:
        ticket = opened.put(topic, body, key=key, headers=headers, deliver_at=due)
    if as_json:
        console.print_json({"client": ctx.obj, "topic": topic, "put": 1, "counter": ticket.counter})


@app.command()
@takes_settings(ClientSettings)
def flush(loaded: Settings, ctx: typer.Context, as_json: AsJson = False) -> None:
    """Send the unfinished puts, in order.

    The command returns when all are on the server's disk. Each is stored once.
    """
    with opened_client(ctx, loaded) as opened:
        opened.flush()
    console.report(as_json, {"client": ctx.obj, "flushed": True}, f"{ctx.obj} has no unfinished put")


@app.command()
@takes_settings(ClientSettings)
def discard(loaded: Settings, ctx: typer.Context, topic: Topic, as_json: AsJson = False) -> None:
    """Give up the unfinished puts on TOPIC. Each of them may or may not have been stored."""
    with opened_client(ctx, loaded, topic) as opened:
        count = opened.discard(topic)
    console.report(
        as_json,
        {"client": ctx.obj, "topic": topic, "discarded": count},
        f"discarded {counted(count, 'unfinished put')} on {topic}",
    )


@app.command()
@takes_settings(ClientSettings)
def renew(
    loaded: Settings,
    ctx: typer.Context,
    keep: Annotated[
        bool, typer.Option("--keep/--discard", help="Send the unfinished puts again, or give them up.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Give a copied state directory a new identity.

    Use it after exit code 10: the client then continues as a new publisher. With --keep, an unfinished put may be
    stored twice if the other copy has sent it already.
    """
    with opened_client(ctx, loaded) as opened:
        opened.renew(keep=keep)
    console.report(as_json, {"client": ctx.obj, "renewed": True, "kept": keep}, f"{ctx.obj} is a new publisher")


process_command.add_to(app)
group_commands.add_to(app)
letter_commands.add_to(app)


@app.command()
@takes_settings(ClientSettings)
def export(
    loaded: Settings,
    ctx: typer.Context,
    target: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory to write into; an existing DIR/client_ID is not replaced.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write the client's state to a directory tree.

    The tree is client_ID/TOPIC/ with the files last_get_id and last_put_counter. Names of topics are percent-encoded,
    as in a URL.
    """
    with opened_client(ctx, loaded) as opened:
        opened.export(target)
    console.report(as_json, {"client": ctx.obj, "exported": str(target)}, f"exported to {target}")


add_to(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m client ARGV…` from a checkout, and return the exit code."""
    return console.run(app, "python -m client", argv)


@contextmanager
def _target(path: Path | None, opened: Client) -> Iterator[StreamTarget | FileTarget]:
    from pubsub.client.writing import StreamTarget, file_target

    # /dev/stdout may be a regular file. Write into that file; never replace it by a new one.
    if path is None or str(path) in {"-", "/dev/stdout", "/dev/fd/1"}:
        yield StreamTarget(sys.stdout.buffer)
        return
    with file_target(path, opened) as target:
        yield target
