"""Streams of server-sent events (HTML Living Standard, *Server-sent events*; docs/http.md, *Streams*).

Each event's `id` is the message's number for this subscriber. A returning reader names its last event in Last-Event-ID.
This confirms all events up to it, and the stream continues with the next one, without gap or repeat. There is no
confirmation while a stream lasts. Sent events are therefore kept until STREAM_KEPT_BYTES of later events were sent,
which is more than a connection can have in flight. The commit that takes new messages also removes them.

The rule is docs/explanation/gateway.md, H8.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from pubsub.errors import PubsubError, Unavailable
from pubsub.gateway.limits import HEARTBEAT_SECONDS, STREAM_KEPT_BYTES, STREAM_RECORDS
from pubsub.gateway.mailbox import Mail, Mailbox
from pubsub.gateway.problems import Problem, body, problem_of

NUMBER_DIGITS_MAX: Final = 18
"""Digits of an event's number; SQLite can store such numbers."""

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Stream:
    """One stream of events.

    Args:
        mailbox: of the subscriber.
        send: sends an ASGI message.
    """

    def __init__(self, mailbox: Mailbox, send: Send) -> None:
        self._mailbox, self._send = mailbox, send
        self._sent = 0
        self._marks: deque[tuple[int, int]] = deque()
        self._droppable = 0
        self._begun = False
        self.events = 0

    async def start(self) -> None:
        self._begun = True
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(b"retry: 1000\n\n")

    async def run(self, after: int) -> None:
        """Send events after a number, endlessly."""
        while True:
            mail = self._mailbox.after(after, STREAM_RECORDS)
            if mail:
                await self._write(b"".join(map(event, mail)))
                after = mail[-1].number
                self.events += len(mail)
                self._sent_up_to(after)
                continue
            try:
                taken = await self._mailbox.take(STREAM_RECORDS, HEARTBEAT_SECONDS, confirmed=self._droppable)
            except Unavailable:
                taken = 0
            if not taken:
                await self._write(b": nothing new\n\n")

    async def end(self, why: PubsubError | Problem | None = None) -> None:
        """End the stream; the last event has the reason, if there is one."""
        if not self._begun:
            await self.start()
        if why is not None:
            problem = why if isinstance(why, Problem) else problem_of(why)
            await self._write(b"event: problem\ndata: " + body(problem.name, problem.detail) + b"\n\n")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self._sent += len(piece)

    def _sent_up_to(self, number: int) -> None:
        self._marks.append((self._sent, number))
        while self._marks and self._sent - self._marks[0][0] >= STREAM_KEPT_BYTES:
            self._droppable = self._marks.popleft()[1]


def event(mail: Mail) -> bytes:
    kind = b"event: lost\n" if mail.body is None else b""
    return b"%sid: %d\ndata: %s\n\n" % (kind, mail.number, msgspec.json.encode(mail.facts()))


def last_event_id(header: str | None) -> int:
    """Return the number in Last-Event-ID, 0 if the header is missing.

    Raises:
        Problem: it is malformed.
    """
    if not header:
        return 0
    if header.isascii() and header.isdecimal() and len(header) <= NUMBER_DIGITS_MAX:
        return int(header)
    raise Problem("bad-request", "Last-Event-ID does not name an event of this stream.")


async def stream(
    one: Stream, after: int, ended: list[asyncio.Future[Any]], check: Callable[[], None]
) -> PubsubError | Problem | None:
    """Send events until one of `ended` is done. Return the reason for the last event.

    The end is not sent here: a reader that reads nothing would otherwise block its subscriber for other readers.

    Args:
        one: the stream.
        after: number of the reader's last event.
        ended: events that end the stream: a disconnect, another reader, the gateway's stop, a lost right.
        check: raises a Problem if the right is lost.
    """
    running = asyncio.ensure_future(_run(one, after))
    try:
        await asyncio.wait([running, *ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    why = None if running.cancelled() else running.exception()
    if why is not None and not isinstance(why, PubsubError | Problem):
        raise why
    if why is None:
        try:
            check()
        except Problem as problem:
            why = problem
    return why


async def _run(one: Stream, after: int) -> None:
    await one.start()
    await one.run(after)
