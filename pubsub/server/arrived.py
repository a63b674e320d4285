"""What proxies have passed on and the server has not handled yet: its clients take turns, and a proxy overtakes nobody.

Requests of one client that came over one proxy stay in order. What a proxy says of its own waits until all that it
passed on before is handled. Two rules rest on that: a mark is answered when the server has taken in what was sent
before it (`proxy/in_flight.py`), and a request from before a proxy confirmed that a topic has left this server is told
from one after it (`requests/admission.py`). What comes after such a word may be handled before it, as if another proxy
had passed it on, or this one earlier: no rule rests on that.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from pubsub.server.fair_queue import FairQueue

Frames = list[bytes | memoryview]

ARRIVED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of one proxy that wait for their turn; beyond it its socket is left alone, and its clients wait. As much as a
proxy has on its way to a server (`proxy/in_flight.py`), so that no newcomer stands behind it in the socket."""

ARRIVED_MAX: Final = 10_000
"""The same in messages; as many as a socket holds."""


class Arrival(NamedTuple):
    """A message that arrived.

    Attributes:
        proxy: the proxy that it came from.
        frames: origin, head and body; the origin is empty where the proxy speaks of its own.
        size: bytes that it holds.
        since: when it was taken from its socket; monotonic seconds.
        word: what the proxy said next of its own, or will say, which waits for this.
    """

    proxy: int
    frames: Frames
    size: int
    since: float
    word: _Word | None


class _Word:
    """What a proxy said of its own, or will say next, and how many requests since the last word are not handled."""

    __slots__ = ("before", "said")

    def __init__(self) -> None:
        self.before = 0
        self.said: Arrival | None = None


class _Proxy:
    """What waits of one proxy: how much, its words that have to wait, and the one that it has not said yet."""

    __slots__ = ("bytes", "count", "next", "words")

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self.words: deque[_Word] = deque()
        self.next = _Word()


class Arrived:
    """What has arrived from proxies.

    Args:
        proxies: how many there are.
    """

    def __init__(self, proxies: int) -> None:
        self._queue: FairQueue[tuple[int, bytes], Arrival] = FairQueue()
        self._proxies = [_Proxy() for _ in range(proxies)]

    def __len__(self) -> int:
        return sum(proxy.count for proxy in self._proxies)

    def has_room(self, index: int) -> bool:
        """Whether a further message of a proxy may be added."""
        proxy = self._proxies[index]
        return proxy.count < ARRIVED_MAX and proxy.bytes < ARRIVED_BYTES_MAX

    def add(self, index: int, frames: Frames, now: float) -> None:
        """Take over a message.

        Args:
            index: the proxy that it came from.
            frames: as in `Arrival`.
            now: monotonic seconds.
        """
        proxy, origin, size = self._proxies[index], bytes(frames[0]), sum(map(len, frames))
        proxy.count += 1
        proxy.bytes += size
        word = proxy.next
        if origin:
            word.before += 1
            self._queue.add((index, origin), Arrival(index, frames, size, now, word), size)
            return
        word.said = Arrival(index, frames, size, now, None)
        proxy.words.append(word)
        proxy.next = _Word()
        self._release(proxy)

    def take(self, *, new: bool = False) -> Arrival | None:
        """The next message; None where none waits. `new`: as in `FairQueue.take`."""
        taken = self._queue.take(new=new)
        if taken is None:
            return None
        proxy = self._proxies[taken.proxy]
        proxy.count -= 1
        proxy.bytes -= taken.size
        if taken.word is not None:
            taken.word.before -= 1
            self._release(proxy)
        return taken

    def _release(self, proxy: _Proxy) -> None:
        """Let what the proxy said take its turn, as far as nothing waits any more that came before it."""
        words = proxy.words
        while words and not words[0].before:
            said = words.popleft().said
            assert said is not None
            self._queue.add((said.proxy, b""), said, said.size)

    def drop(self, index: int) -> None:
        """Forget what came from a proxy: its connection is closed, and what else was in it is gone too."""
        self._queue.drop(lambda sender: sender[0] == index)
        self._proxies[index] = _Proxy()

    def clear(self) -> None:
        """Forget everything."""
        for index in range(len(self._proxies)):
            self.drop(index)
