"""The calls of a client that read stored messages: `read`, `times`, and the check before a seek.

The rule of that check is docs/explanation/looking-back.md, Z4.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pubsub.client.arguments import check_not_of_calls, check_seconds, check_truth
from pubsub.client.core.message import Batch, Message
from pubsub.client.look_back import Page, RangeReader, TopicTimes, read_times
from pubsub.client.refusals import Asker
from pubsub.client.requests import Proxies
from pubsub.client.starts import StartAt, check_start, check_stop
from pubsub.errors import CallerError, DataLoss
from pubsub.protocol import check_topic
from pubsub.protocol.names import LATEST

if TYPE_CHECKING:
    from pubsub.client.session import Session
    from pubsub.protocol.names import Start


class LookBackCalls:
    """The calls of one client.

    Args:
        session: names the proxies and the keys.

    Attributes:
        wall: the client's clock, seconds since 1970.
    """

    def __init__(self, session: Session) -> None:
        self._session, self.wall = session, session.clock.wall

    def times(self, topic: str) -> TopicTimes:
        check_not_of_calls(topic)
        check_topic(topic)
        with self._proxies(None) as proxies:
            return read_times(proxies, self._session.name, topic)

    def check_held(self, topic: str, start: Start) -> None:
        """Check that some server holds the message at the start of a seek, before the seek changes anything.

        Raises:
            StartGone: no server holds it.
            PubsubError: otherwise as `Client.read`.
        """
        if isinstance(start, tuple):
            with self._proxies(None) as proxies, suppress(DataLoss):
                RangeReader(proxies, self._session.name, topic, start, LATEST).page(1, 1)

    def range(
        self, topic: str, start: StartAt, stop: StartAt | None, timeout: float | None, *, skip_lost: bool
    ) -> OpenRange:
        """Check the arguments of a read; nothing is sent yet."""
        check_not_of_calls(topic)
        check_topic(topic)
        begins, ends = check_start(start), check_stop(stop)
        check_seconds("timeout", timeout)
        check_truth("skip_lost", skip_lost)
        return OpenRange(self, self._session.name, topic, begins, ends, timeout, skip_lost=skip_lost)

    def _proxies(self, timeout: float | None) -> Proxies:
        session = self._session
        with session.entered():  # A closed client refuses.
            asker = Asker(session.name, None if session.keys is None else session.keys.pair)
            settings = session.settings
            seconds = settings.timeout_seconds if timeout is None else timeout
            return Proxies(settings.proxies, seconds, session.context, keys=session.keys, asker=asker)


class OpenRange:
    """A range that is read on one thread at a time; its connections open with the first page.

    Args:
        calls: opens the connections.
        skip_lost: pass over lost messages, and raise nothing.
    """

    def __init__(
        self,
        calls: LookBackCalls,
        sender: str,
        topic: str,
        start: Start,
        stop: Start,
        timeout: float | None,
        *,
        skip_lost: bool,
    ) -> None:
        self._calls, self._facts, self._timeout, self._skips = calls, (sender, topic, start, stop), timeout, skip_lost
        self._topic = topic
        self._proxies: Proxies | None = None
        self._reader: RangeReader | None = None
        self._lock = threading.Lock()
        self._closed = False

    def page(self) -> Page:
        """Return the next page; errors as `RangeReader.page`."""
        with self._lock:
            if self._closed:
                raise CallerError(f"{self._topic}: the read was ended")
            if self._reader is None:
                self._proxies = self._calls._proxies(self._timeout)
                self._reader = RangeReader(self._proxies, *self._facts, wall=self._calls.wall)
            try:
                return self._reader.page()
            except DataLoss:
                if not self._skips:
                    raise
                return Page(Batch(self._topic), self._reader.place)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._proxies is not None:
                self._proxies.close()

    def messages(self) -> Iterator[Message]:
        try:
            while not (page := self.page()).ended:
                yield from page.batch
        finally:
            self.close()

    async def awaited(self) -> AsyncIterator[Message]:
        """Yield as `messages`; each page is requested on a thread of the event loop's executor."""
        from asyncio import to_thread  # noqa: PLC0415  a client on threads does not load asyncio

        try:
            while not (page := await to_thread(self.page)).ended:
                for message in page.batch:
                    yield message
        finally:
            await to_thread(self.close)
