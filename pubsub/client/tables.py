"""Tables: the last message of each key of a topic, in memory, followed on a thread of their own.

The rule is docs/explanation/compaction.md, KL9.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, ItemsView, Iterator
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pubsub.base.clock import MICROSECONDS
from pubsub.client.arguments import check_count, check_not_of_calls, check_seconds
from pubsub.client.refusals import Asker
from pubsub.client.requests import NO_TOPIC, Proxies
from pubsub.client.table_view import TABLE_BYTES_MAX, Entry, View, explained
from pubsub.errors import CallerError, NotKnown, PubsubError, Refused, Unavailable
from pubsub.protocol import Outcome, Status, check_topic

if TYPE_CHECKING:
    from pubsub.client.session import Session

FOLLOW_SECONDS: Final = 0.25
"""Pause between two looks for new messages."""

Key = bytes | str


def _bytes(key: Key) -> bytes:
    if not isinstance(key, bytes | str):
        raise CallerError(f"the key of a table is bytes or str, not {type(key).__name__}")
    return key.encode() if isinstance(key, str) else key


class Table:
    """A table that follows a topic while it is open; a context manager (docs/how-to/keep-the-latest.md).

    A key may be bytes or text, which is encoded as UTF-8. A value is the body of the last message with the key. A key
    has no value from the moment at which the time to live of that message ends. Reads of the table take the present
    state from memory, from any thread. The table of a topic that does not exist is empty until the first put.

    Args:
        connect: opens connections to the proxies.
        sender: the client ID.
        topic: its name.
        timeout: time limit of the first look, and default of the calls that wait, in seconds.
        bytes_max: limit of the table's bytes.

    Raises:
        InvalidName, CallerError: the topic is not allowed.
    """

    def __init__(
        self, connect: Callable[[float], Proxies], sender: str, topic: str, timeout: float, bytes_max: int
    ) -> None:
        check_not_of_calls(topic)
        check_topic(topic)
        check_seconds("timeout", timeout)
        self._connect, self._timeout = connect, timeout
        self._view = View(sender, topic, bytes_max)
        self._changed = threading.Condition()
        self._begun = self._done = self._wanted = 0
        """Looks that have begun and that are complete, and the one that a caller waits for."""
        self._failed: PubsubError | None = None
        self._last: PubsubError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name=f"table {topic}", daemon=True)

    # Values

    def __getitem__(self, key: Key) -> bytes:
        return self._values[_bytes(key)].body

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        entry = self._values.get(_bytes(key))
        return default if entry is None else entry.body

    def __contains__(self, key: Key) -> bool:
        return _bytes(key) in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._values))

    def items(self) -> ItemsView[bytes, bytes]:
        """Return the keys with their values, as they are now; later messages do not change them."""
        with self._changed:
            return {key: entry.body for key, entry in self._values.items()}.items()

    @property
    def lost(self) -> int:
        """Number of reports of lost messages. A lost message may have been the last one of its key."""
        return self._view.lost

    @property
    def problem(self) -> str:
        """The reason why the table does not follow at present, or why there is nothing to follow; "" if it does."""
        if self._last is None and self._view.absent:
            return _absent(self._view.topic)
        return "" if self._last is None else str(self._last)

    # Waiting

    def wait_for(self, key: Key, timeout: float | None = None) -> bytes:
        """Return the value of a key as soon as there is one.

        Args:
            key: bytes or text.
            timeout: in seconds; None: the client's.

        Raises:
            Unavailable: there is none in time.
        """
        wanted = _bytes(key)
        self._wait(timeout, lambda: wanted in self._values, f"no value of {wanted.decode(errors='replace')!r}")
        return self[wanted]

    def sync(self, timeout: float | None = None) -> None:
        """Wait until the table has every message with an answer to its put before this call.

        Args:
            timeout: in seconds; None: the client's.

        Raises:
            Unavailable: no answer came in time.
        """
        with self._changed:
            look = self._wanted = self._begun + 1
            self._changed.notify_all()
        self._wait(timeout, lambda: self._done >= look, "the table is not complete")

    def _wait(self, timeout: float | None, condition: Callable[[], bool], problem: str) -> None:
        check_seconds("timeout", timeout)
        seconds = self._timeout if timeout is None else timeout
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._closing or self._failed is not None, seconds)
            if condition():
                return
            if self._failed is not None:
                raise self._failed
            if self._closing:
                raise CallerError(f"the table of {self._view.topic} is closed")
            raise Unavailable("table", self._view.topic, seconds, self.problem or problem)

    @property
    def _values(self) -> dict[bytes, Entry]:
        if self._failed is not None:
            raise self._failed
        now = _now()
        if self._view.is_due(now):
            with self._changed:
                self._view.expire(now)
        return self._view.values

    # The thread

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            Table.sync(self)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop to follow the topic. The values stay as they are."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _follow(self) -> None:
        try:
            with self._connect(self._timeout) as proxies:
                proxies.tells_absent = True
                while not self._closing:
                    self._look(proxies)
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing or self._wanted > self._begun, FOLLOW_SECONDS)
        except PubsubError as error:
            with self._changed:
                self._failed = self._last = error
                self._changed.notify_all()

    def _look(self, proxies: Proxies) -> None:
        """Read all that there is."""
        with self._changed:
            self._begun += 1
        try:
            while not self._closing and self._page(proxies):
                pass
        except Unavailable as error:  # The next look may succeed.
            self._last = error
            return
        with self._changed:
            self._last, self._done = None, self._begun
            self._changed.notify_all()

    def _page(self, proxies: Proxies) -> bool:
        status = _ask(proxies, self._view)
        with self._changed:
            more = _received(self._view, status)
            self._changed.notify_all()
        return more


def _now() -> float:
    return time.time() * MICROSECONDS


def _ask(proxies: Proxies, view: View) -> Status:
    try:
        return proxies.ask(view.request())
    except Refused as error:
        raise explained(error) from None


def _received(view: View, status: Status) -> bool:
    """Process an answer; return True if there may be another page now."""
    if status.outcome is Outcome.UNKNOWN and status.reason == NO_TOPIC:
        view.find_absent()
        return False
    return view.receive(status, _now())


def _absent(topic: str) -> str:
    return f"topic {topic}: no server holds it; pubsub status lists the topics"


_Kind = TypeVar("_Kind", bound=Table)


def open_table(session: Session, topic: str, kind: type[_Kind], bytes_max: int | None) -> _Kind:
    """Return a table of a client, which follows once it is entered."""

    def connect(seconds: float) -> Proxies:
        with session.entered():  # A closed client refuses.
            asker = Asker(session.name, None if session.keys is None else session.keys.pair)
            return Proxies(session.settings.proxies, seconds, session.context, keys=session.keys, asker=asker)

    limit = TABLE_BYTES_MAX if bytes_max is None else bytes_max
    check_count("bytes_max", limit)
    return kind(connect, session.name, topic, session.settings.timeout_seconds, limit)


def read_table(proxies: Proxies, sender: str, topic: str, bytes_max: int = TABLE_BYTES_MAX) -> View:
    """Read a table once; raises as `read_on`."""
    view = View(sender, topic, bytes_max)
    read_on(proxies, view)
    return view


def read_on(proxies: Proxies, view: View) -> None:
    """Read the messages since a view was read last; a new view begins at the topic's begin.

    Raises:
        NotKnown: no server holds the topic.
        TooLarge: the table has more bytes than its limit.
        PubsubError: as `Proxies.ask`.
    """
    proxies.tells_absent = True
    begun, until = view.begun, time.monotonic() + proxies.timeout_seconds
    while _received(view, _ask(proxies, view)):
        if view.begun > begun and time.monotonic() > until:
            seconds = proxies.timeout_seconds
            raise Unavailable("table", view.topic, seconds, "the order of its messages changes all the time")
    if view.absent:
        raise NotKnown(_absent(view.topic))
    view.expire(_now())
