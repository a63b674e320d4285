"""`pubsub client ID …`: one operation of a client, from a shell.

Each command opens the client's durable state, does one thing, and closes it; so a script of them is one client, with
everything that a program's client promises.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from pubsub import console
from pubsub.client.call_commands import add_to
from pubsub.client.facts import beside_facts, body_facts, written
from pubsub.client.inputs import (
    HeaderOption,
    KeyOption,
    headers_of,
    message_of,
    opened_client,
    put_lines,
    readable,
    source,
)
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import takes_settings
from pubsub.errors import CallerError, StoreInUse, Unavailable

if TYPE_CHECKING:
    from pubsub.client import Batch, Client, DeadLetter, Transaction
    from pubsub.client.writing import FileTarget, StreamTarget


class ClientGroup(TyperGroup):
    """Takes `pubsub client ID --help` for a call for help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with a --help behind the ID brought to the front.

        Raises:
            CallerError: the ID was left out.
        """
        if len(args) > 1 and args[0] in self.commands and args[1] not in {*self.commands, "--help"}:
            raise CallerError(f"the client's ID comes first: pubsub client ID {args[0]} {args[1]} …")
        return super().parse_args(ctx, ["--help"] if args[1:2] == ["--help"] else args)


app = typer.Typer(
    name="client", cls=ClientGroup, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
)

QUESTION_SECONDS: Final = 0.25
"""Patience of a get with --wait 0: the service must be asked at least once."""

ANSWER_SECONDS: Final = 5.0
"""The service may take so long for an answer, however short --wait is: a busy one is not an unreachable one."""

BATCH: Final = 100
"""Messages that get writes to a stream before it takes them: so many may come again."""

FILE_BATCH: Final = 10_000
"""Messages that get writes into a file before it takes them; into a file none comes again."""

BODY_SHOWN_BYTES: Final = 200
"""Of the body of a dead letter, as a table shows it; with --json it is there whole."""

Settings = Loaded[ClientSettings]
_LETTER: Final = ("topic", "first", "last", "publisher", "counter", "stamp", "error", "attempts", "at")

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def client(
    ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="ID", help="The client: 1-64 of A-Z a-z 0-9 . _ -")]
) -> None:
    """Do one thing as the client ID: subscribe, put, get …"""
    ctx.obj = name


@app.command()
@takes_settings(ClientSettings)
def subscribe(
    loaded: Settings,
    ctx: typer.Context,
    topic: Topic,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin at the end, and drop what waits.")] = False,
    as_json: AsJson = False,
) -> None:
    """Receive what is put to TOPIC from now on. What the service has waiting for this ID is continued."""
    with opened_client(ctx, loaded, topic, new=True) as opened:
        opened.subscribe(topic, fresh=fresh)
    console.report(as_json, {"client": ctx.obj, "subscribed": topic}, f"{ctx.obj} is subscribed to {topic}")


@app.command()
@takes_settings(ClientSettings)
def unsubscribe(loaded: Settings, ctx: typer.Context, topic: Topic, as_json: AsJson = False) -> None:
    """Receive nothing more of TOPIC; what waits is given up."""
    with opened_client(ctx, loaded, topic) as opened:
        opened.unsubscribe(topic)
    console.report(as_json, {"client": ctx.obj, "unsubscribed": topic}, f"{ctx.obj} is not subscribed to {topic}")


@app.command()
@takes_settings(ClientSettings)
def get(
    loaded: Settings,
    ctx: typer.Context,
    topic: Topic,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Messages to take at most.")] = 1,
    wait: Annotated[
        float, typer.Option(min=0, max=1e9, metavar="SECONDS", help="Patience with a topic that is empty.")
    ] = 1.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write there, not to stdout; complete or not at all.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"Messages to write and then take together [{BATCH}; into a file {FILE_BATCH:,}]."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take messages of TOPIC; exit code 3 where there is none.

    What is written is taken, in this order: a command that is killed, or whose output fails, writes the last batch
    again. So each message is written at least once. With --out FILE exactly once: FILE appears, or is replaced, when
    all is in it; what a killed command had taken is completed by the next get.
    A single message is written as it is. Of several, each that does not end a line gets an end of line. With --json
    each is one line: id, topic, publisher, counter, stamp, and body, or body_base64 where the body is not UTF-8; key,
    and headers by name, where it has any, or key_base64, headers_base64.
    """
    from pubsub.client.writing import finish_interrupted

    with opened_client(ctx, loaded, topic) as opened:
        done = finish_interrupted(opened)
        for path in done:
            console.note(f"{path} is complete now: an earlier get was killed before that")
        if out is not None and out.resolve() in done:
            return
        with _target(out, opened) as target:

            def write(messages: Batch, transaction: Transaction) -> None:
                texts = [written(message, as_json, alone=count == 1) for message in messages]
                target.write(b"".join(texts), transaction)

            most = batch or (FILE_BATCH if target.fsync else BATCH)
            taken = _hand_on(opened, topic, count, most, max(wait, QUESTION_SECONDS), write, fsync=target.fsync)
    if not taken:
        console.complain(f"{topic} has no message for {ctx.obj} within {wait:g} s")
        raise typer.Exit(console.EXIT_NO_MESSAGE)


def _hand_on(
    opened: Client,
    topic: str,
    count: int,
    most: int,
    seconds: float,
    write: Callable[[Batch, Transaction], None],
    *,
    fsync: bool,
) -> int:
    """Have up to `count` messages written and then taken, `most` together, until none comes in time; how many."""
    taken, patience = 0, seconds
    asked = time.monotonic()
    deadline = asked + seconds
    while taken < count:
        flow = opened._calls.gets.hand_on(topic, min(most, count - taken), write, patience, fsync=fsync)
        try:
            found = opened._run(flow)
        except Unavailable:  # A topic is empty only once the service has said so, however short the wait.
            if time.monotonic() >= asked + min(ANSWER_SECONDS, opened.settings.timeout_seconds):
                raise
            patience = QUESTION_SECONDS  # Not what is left of it: a call without patience looks, and asks nobody.
            deadline = time.monotonic() + QUESTION_SECONDS
            continue
        if not found:
            break
        taken += found
        patience = max(0.0, deadline - time.monotonic())
    return taken


@app.command()
@takes_settings(ClientSettings)
def put(
    loaded: Settings,
    ctx: typer.Context,
    topic: Topic,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The message's file; - is standard input.")],
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message, without its end of line.")] = False,
    header: HeaderOption = None,
    message_key: KeyOption = "",
    as_json: AsJson = False,
) -> None:
    """Put a file's content to TOPIC as one message; done when it is on the server's disk.

    --header and --message-key go with the message; with --lines with each of them.

    Exit code 5: in doubt; it is kept and goes out, once, with the next put or `flush`. With --lines, 130: interrupted;
    it says how many lines were put.
    """
    from pubsub.protocol import check_topic, encode_headers

    check_topic(topic)
    key, headers = os.fsencode(message_key), headers_of(header)
    encode_headers(headers)
    if lines:
        console.end_when_terminated()
        with source(path) as stream, opened_client(ctx, loaded, topic, new=True) as opened:
            done, seconds = put_lines(opened, topic, stream, path, key, headers)
        facts = {"client": ctx.obj, "topic": topic, "put": done, "seconds": round(seconds, 3)}
        console.report(as_json, facts, f"put {done:,} messages to {topic} in {seconds:.2f} s")
        return
    with source(path) as stream, readable(path):
        body = message_of(stream)
    with opened_client(ctx, loaded, topic, new=True) as opened:
        ticket = opened.put(topic, body, key=key, headers=headers)
    if as_json:
        console.print_json({"client": ctx.obj, "topic": topic, "put": 1, "counter": ticket.counter})


@app.command()
@takes_settings(ClientSettings)
def flush(loaded: Settings, ctx: typer.Context, as_json: AsJson = False) -> None:
    """Finish the puts that are in doubt, in order, each once."""
    with opened_client(ctx, loaded) as opened:
        opened.flush()
    console.report(as_json, {"client": ctx.obj, "flushed": True}, f"{ctx.obj} has no unfinished put")


@app.command()
@takes_settings(ClientSettings)
def discard(loaded: Settings, ctx: typer.Context, topic: Topic, as_json: AsJson = False) -> None:
    """Give up the unfinished puts on TOPIC. Each of them may have been taken, or not."""
    with opened_client(ctx, loaded, topic) as opened:
        count = opened.discard(topic)
    console.report(
        as_json,
        {"client": ctx.obj, "topic": topic, "discarded": count},
        f"discarded {count:,} unfinished puts on {topic}",
    )


@app.command()
@takes_settings(ClientSettings)
def renew(
    loaded: Settings,
    ctx: typer.Context,
    keep: Annotated[
        bool, typer.Option("--keep/--discard", help="Put the unfinished puts again, or give them up.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Make a copied state directory a publisher of its own.

    An unfinished put may have been taken already, from the other copy: with --keep it may arrive twice.
    """
    with opened_client(ctx, loaded) as opened:
        opened.renew(keep=keep)
    console.report(as_json, {"client": ctx.obj, "renewed": True, "kept": keep}, f"{ctx.obj} is a new publisher")


@app.command("dead-letters")
@takes_settings(ClientSettings)
def dead_letters(
    loaded: Settings,
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="All without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what was lost, and what a handler failed on too often; of a client that another process runs, too."""
    letters = _letters(ctx, loaded, topic)
    if as_json:
        console.print_json(
            [
                body_facts(letter.body)
                | beside_facts(letter.key, letter.headers)
                | {f: getattr(letter, f) for f in _LETTER}
                for letter in letters
            ]
        )
        return
    table = console.table("topic", "first", "last", "publisher", "attempts", "error", "body")
    for letter in letters:
        body = "" if letter.body is None else letter.body[:BODY_SHOWN_BYTES].decode("utf-8", "replace")
        row = (letter.topic, letter.first, letter.last, letter.publisher, str(letter.attempts), letter.error, body)
        table.add_row(*row)
    console.print_table(table)


def _letters(ctx: typer.Context, loaded: Settings, topic: str | None) -> list[DeadLetter]:
    """The dead letters; where another process runs the client, out of a copy of its state."""
    from pubsub.client.dead_letters import letters_in
    from pubsub.client.storage.copies import copied
    from pubsub.client.storage.places import state_path

    try:
        with opened_client(ctx, loaded, topic) as opened:
            return opened.dead_letters(topic)
    except StoreInUse:
        with copied(state_path(ctx.obj, loaded.settings.directory)) as found:
            return letters_in(found, topic)


@app.command()
@takes_settings(ClientSettings)
def export(
    loaded: Settings,
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to write to.")],
    as_json: AsJson = False,
) -> None:
    """Write the client's state as a directory tree: client_ID/TOPIC/last_get_id, last_put_counter."""
    with opened_client(ctx, loaded) as opened:
        opened.export(target)
    console.report(as_json, {"client": ctx.obj, "exported": str(target)}, f"exported to {target}")


add_to(app)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m client ARGV…` from a checkout."""
    return console.run(app, "python -m client", argv)


@contextmanager
def _target(path: Path | None, opened: Client) -> Iterator[StreamTarget | FileTarget]:
    from pubsub.client.writing import StreamTarget, file_target

    # /dev/stdout may lead to a regular file; that file is written to, and never replaced by a new one.
    if path is None or str(path) in {"-", "/dev/stdout", "/dev/fd/1"}:
        yield StreamTarget(sys.stdout.buffer)
        return
    with file_target(path, opened) as target:
        yield target
