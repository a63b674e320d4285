"""Send a publisher's open batch when its linger time is over."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol
from weakref import ref

from pubsub.client.filling import Filling
from pubsub.client.flows.calls import Calls
from pubsub.errors import AfterFork, PubsubError

_NEVER: Final = float("inf")


class Filled(Protocol):
    """The parts of a publisher that its timer uses."""

    topic: str

    def deadline(self) -> float:
        """Return the time to send the open batch, on the monotonic clock."""

    def tick(self, now: float) -> None:
        """Send the open batch."""

    def finish(self) -> int:
        """Put the contents of the open batch, and return the number of messages."""

    def return_taken(self) -> None:
        """Release the publisher's lock if this thread holds it."""

    def move(self, calls: Calls) -> None:
        """Continue in the session of `calls`."""

    def forked(self, error: AfterFork) -> None:
        """Drop the batch in a child process."""


class Lingering:
    """A publisher's open batch as a timer of the client, which sends the batch when its linger time is over.

    The timer holds the publisher by a weak reference only, because a publisher keeps its client alive. So garbage
    collection finds publishers and clients that the application forgot to close.
    """

    def __init__(self, publisher: Filled, calls: Calls) -> None:
        self._publisher = ref(publisher)
        self.topic, self._calls = publisher.topic, calls
        self.filling: Filling | None = None
        self._again = -_NEVER

    def deadline(self) -> float:
        """Return the time to send the batch, on the monotonic clock; the past if the publisher is gone."""
        publisher = self._publisher()
        return publisher.deadline() if publisher is not None else self._again

    def tick(self, now: float) -> None:
        """Send the batch. The thread that drives the sockets calls this method and must not wait for a put."""
        publisher = self._publisher()
        if publisher is not None:
            publisher.tick(now)
            return
        try:
            self._put()
        except PubsubError:
            self._again = now + 1.0

    def finish(self) -> int:
        """Put the contents of the batch before the client closes; return the number of messages."""
        publisher = self._publisher()
        return publisher.finish() if publisher is not None else self._put()

    def _put(self) -> int:
        """Put the batch of a collected publisher once, although the driving thread and a `close` may both call this."""
        held, session = 0, self._calls.session
        if self.filling is not None:
            with session.entered():
                filling = self.filling
                if filling is not None and filling.bodies and filling.row is None:
                    filling.put(self.topic, session)
                    held = len(filling.bodies)
                self.filling = None
        self.leave()
        return held

    def leave(self) -> None:
        """Stop being a timer of the client."""
        with suppress(ValueError):
            self._calls.session.timers.remove(self)

    def return_taken(self) -> None:
        """Release the publisher's lock if this thread holds it, after an exception that may come from anywhere."""
        publisher = self._publisher()
        if publisher is not None:
            publisher.return_taken()

    def move(self, calls: Calls) -> None:
        """Continue in the session of `calls` after the client opened itself again."""
        publisher = self._publisher()
        self._calls = calls
        calls.session.timers.append(self)
        if publisher is not None:
            publisher.move(calls)
        elif self.filling is not None and self.filling.moved(calls.puts.chain(self.topic)):
            self.filling = None

    def forked(self, error: AfterFork) -> None:
        """Drop the batch in a child process."""
        self.filling = None
        publisher = self._publisher()
        if publisher is not None:
            publisher.forked(error)
