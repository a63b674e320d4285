"""Input of the client commands: the opened client, files, lines, keys and headers."""

from __future__ import annotations

import os
import shlex
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from pubsub import console
from pubsub.base.limits import DELAY_SECONDS_MAX
from pubsub.client.interrupted import Interrupts
from pubsub.client.ttl import with_ttl
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import naming_default
from pubsub.errors import CallerError, InDoubt, PubsubError, StorageError, TooLarge, Unavailable

if TYPE_CHECKING:
    from pubsub.client import Client

HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Header of the message; may be repeated."),
]
KeyOption = Annotated[
    str,
    typer.Option(
        "--message-key", metavar="TEXT", help="Key of the message, such as a customer number; subscribers receive it."
    ),
]

Delay = Annotated[
    str,
    typer.Option("--delay", metavar="SECONDS", help="Deliver the message after so many seconds: 90, or 30m, 2h, 7d."),
]
DeliverAt = Annotated[
    str,
    typer.Option(
        "--deliver-at", metavar="TIME", help="Deliver the message at this time, such as 2026-12-01T08:00:00Z."
    ),
]
Ttl = Annotated[
    str,
    typer.Option("--ttl", metavar="SECONDS", help="Subscribers pass the message over after so many seconds: 90, 30m."),
]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def due_options(delay: str, deliver_at: str) -> datetime | None:
    """Return the moment of the delivery that the options ask for; None for at once.

    Raises:
        CallerError: an option cannot be read, or both are given.
    """
    if delay and deliver_at:
        raise CallerError("--delay and --deliver-at both say when the message is due; give only one of them")
    try:
        if delay:
            unit = _UNITS.get(delay[-1])
            seconds = float(delay[:-1] if unit else delay) * (unit or 1)
            if not 0 <= seconds <= DELAY_SECONDS_MAX:
                raise CallerError(f"--delay {delay} is not between 0 and {DELAY_SECONDS_MAX // 86400}d")
            return datetime.now(UTC) + timedelta(seconds=seconds) if seconds else None
        moment = datetime.fromisoformat(deliver_at) if deliver_at else None
    except ValueError:
        given = f"--delay {delay}" if delay else f"--deliver-at {deliver_at}"
        wanted = "a number of seconds, or one with s, m, h or d" if delay else "a time such as 2026-12-01T08:00:00Z"
        raise CallerError(f"{given} is not {wanted}") from None
    if moment is not None and moment.utcoffset() is None:
        day = f"{deliver_at}T00:00" if deliver_at and len(deliver_at) == len("2026-11-01") else deliver_at
        raise CallerError(f"--deliver-at {deliver_at} has no time zone; write {day}Z for UTC, or {day}+01:00")
    return moment


def ttl_option(text: str) -> float | None:
    """Return the seconds of --ttl; None without it.

    Raises:
        CallerError: it is not a number of seconds.
    """
    unit = _UNITS.get(text[-1:])
    try:
        return float(text[:-1] if unit else text) * (unit or 1) if text else None
    except ValueError:
        raise CallerError(f"--ttl {text} is not a number of seconds, or one with s, m, h or d") from None


def headers_of(words: Sequence[str] | None, ttl: str = "") -> dict[str, bytes]:
    """Parse headers of the command line, and add the time to live of --ttl.

    Raises:
        CallerError: a header is not NAME=VALUE, or a name is repeated.
    """
    found: dict[str, bytes] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or name in found:
            raise CallerError(f"--header {word!r} {'repeats a name' if equals else 'is not of the form NAME=VALUE'}")
        found[name] = os.fsencode(value)
    seconds = ttl_option(ttl)
    return found if seconds is None else dict(with_ttl(found, seconds))


@contextmanager
def opened_client(
    ctx: typer.Context, loaded: Loaded[ClientSettings], topic: str | None = None, *, new: bool = False
) -> Iterator[Client]:
    """Open the client. A missing state directory is made only with `new`, and only if the topic's name is valid."""
    from pubsub.base.reachability import telling_obstacles
    from pubsub.client import Client
    from pubsub.client.looking import check_exists
    from pubsub.protocol import check_topic

    if topic is not None:
        check_topic(topic)
    if not new:
        check_exists(ctx.obj, loaded.settings)
    opened = Client(ctx.obj, settings=loaded.settings)
    try:
        with naming_default(loaded):
            try:
                with opened, telling_obstacles(opened.settings.proxies, console.note):
                    yield opened
            except PubsubError as error:
                error.options = _options_of(loaded)
                raise
    finally:
        if opened.record_problem:
            console.complain(f"the record is incomplete: {opened.record_problem}")


def _options_of(loaded: Loaded[ClientSettings]) -> str:
    """Return the given options by which another command finds the same client and proxies, for hints in errors."""
    settings, origins = loaded.settings, loaded.origins
    words: list[str] = []
    if origins["directory"].startswith("--"):
        words += ("--dir", str(settings.directory))
    if origins["database"].startswith("--"):
        words += ("--database", str(settings.database))
    if origins["proxies"].startswith("--") and not settings.proxy_keys:
        for address in settings.proxies:
            words += ("--proxy", address)
    return "".join(f" {shlex.quote(word)}" for word in words)


@contextmanager
def source(path: Path) -> Iterator[IO[bytes]]:
    """Open the file, or standard input for `-`."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with readable(path):
        stream = path.open("rb")
    with stream:
        yield stream


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Name the file in errors.

    Raises:
        CallerError: the file cannot be read.
    """
    try:
        yield
    except OSError as error:
        name = "standard input" if str(path) == "-" else str(path)
        hint = (
            "; PATH must be a file; to put a text, give - and pipe the text in"
            if isinstance(error, FileNotFoundError)
            else ""
        )
        raise CallerError(f"{name}: {error.strerror or error}{hint}") from None


def message_of(stream: IO[bytes]) -> bytes:
    """Read a message, but no more than one byte beyond the limit: the input may be larger than memory.

    Raises:
        TooLarge: the input is larger than a message may be.
    """
    from pubsub.protocol import RECORD_BYTES_MAX

    body = stream.read(RECORD_BYTES_MAX + 1)
    if len(body) > RECORD_BYTES_MAX:
        size = len(body)
        with suppress(OSError):  # The size of a pipe is not known, and a stream without a file has no descriptor.
            size = max(size, os.fstat(stream.fileno()).st_size)
        raise TooLarge("body", size, RECORD_BYTES_MAX, "RECORD_BYTES_MAX")
    return body


def _lines(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield each line; a line beyond the limit is cut just past it, so that the put rejects it."""
    from pubsub.protocol import RECORD_BYTES_MAX

    with readable(path):
        first = stream.readline(RECORD_BYTES_MAX + 2)
        if first:
            yield first.removeprefix(BOM_UTF8)  # The byte order mark belongs to the file, not to the first line.
            yield from iter(partial(stream.readline, RECORD_BYTES_MAX + 2), b"")


def put_lines(
    opened: Client,
    topic: str,
    stream: IO[bytes],
    path: Path,
    key: bytes,
    headers: Mapping[str, bytes],
    deliver_at: datetime | None = None,
) -> tuple[int, float]:
    """Put each line with this key and these headers; return their number and the seconds taken.

    If stderr is a terminal, it shows a progress bar.

    Raises:
        InDoubt: there was no room for a line; the lines before it are kept.
    """
    started = time.monotonic()
    done, lines, interrupts = 0, _lines(stream, path), Interrupts()
    try:
        with interrupts, _progress(path) as advance, opened.publisher(topic) as publisher:
            while True:
                with interrupts.waiting():
                    if (line := next(lines, None)) is None:
                        break
                    if publisher.crowded:
                        opened._run(publisher.room())
                publisher.put(
                    line[:-1] if line.endswith(b"\n") else line, key=key, headers=headers, deliver_at=deliver_at
                )
                done += 1
                advance(len(line))
            with interrupts.waiting():
                publisher.flush()
    except (KeyboardInterrupt, CallerError, StorageError) as error:
        if not isinstance(error, KeyboardInterrupt) and not interrupts.came:
            if done:
                console.note(_went(opened, topic, done))
            raise
        console.complain(f"interrupted: {_went(opened, topic, done)}")
        raise KeyboardInterrupt from None
    except Unavailable as error:
        if isinstance(error, InDoubt) or not (unfinished := opened.unfinished(topic)):
            raise
        # There was no room for this line. The lines before it are kept, and must not be put again.
        reason = f"{error.reason}; only the first {done:,} lines were put"
        raise InDoubt(opened.name, topic, error.seconds, reason, unfinished) from None
    return done, time.monotonic() - started


def _went(opened: Client, topic: str, done: int) -> str:
    """Return how many lines were put before an interruption, and where they are now."""
    said = f"the first {done:,} lines were put to {topic}, and no others"
    try:
        left = opened.unfinished(topic)
    except PubsubError:
        return f"{said}; those that are not on the server's disk yet are sent, once, with the next put or flush"
    if not left:
        return f"{said}; all of them are on the server's disk"
    return f"{said}; {left:,} are not on the server's disk yet and are sent, once, with the next put or flush"


@contextmanager
def _progress(path: Path) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    size = path.stat().st_size if path.is_file() else None
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("put", total=size)
        yield lambda count: bar.advance(task, count)
