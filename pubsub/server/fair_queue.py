"""Who comes next of those whose messages wait: nobody stands behind another one's backlog.

The two lists of flows of FQ-CoDel (RFC 8290, 4.2), which take turns by bytes: who had nothing waiting comes before
those who have, each may send a quantum in its turn, and who sent more sits out turns until that is made good. So a put
of somebody who waits for each answer does not take the time that a producer's window of megabytes takes, and many small
messages get as much of the server as few large ones. What one sender sends stays in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

QUANTUM_BYTES: Final = 64 * 1024
"""What a sender may send in one turn; its last message may go beyond it."""

MESSAGE_BYTES: Final = 4 * 1024
"""What a message counts for beside its own bytes: as many as are copied in the time that any message takes."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _Flow(Generic[T]):
    """What waits of one sender, and the bytes that it may still send in this turn; below 0 it owes some."""

    __slots__ = ("credit", "messages")

    def __init__(self) -> None:
        self.messages: deque[tuple[T, int]] = deque()
        self.credit = QUANTUM_BYTES


class FairQueue(Generic[K, T]):
    """Messages that wait, by sender."""

    def __init__(self) -> None:
        self._flows: dict[K, _Flow[T]] = {}
        self._new: deque[K] = deque()
        """Senders that had nothing waiting when their first message came, and have had no turn since."""
        self._old: deque[K] = deque()
        """All others; one with nothing waiting goes when its turn comes, so that who comes back at once waits too."""

    def add(self, sender: K, message: T, size: int) -> None:
        """Have a message wait.

        Args:
            sender: whose messages stay in order.
            size: bytes that it holds.
        """
        flow = self._flows.get(sender)
        if flow is None:
            self._flows[sender] = flow = _Flow()
            self._new.append(sender)
        flow.messages.append((message, size))

    def take(self, *, new: bool = False) -> T | None:
        """The next message; None where none waits. `new`: only of those who had nothing waiting and no turn since."""
        while senders := self._new or (not new and self._old):
            sender = senders[0]
            flow = self._flows[sender]
            if flow.credit > 0 and flow.messages:
                message, size = flow.messages.popleft()
                flow.credit -= size + MESSAGE_BYTES
                return message
            senders.popleft()
            if flow.credit <= 0:
                flow.credit += QUANTUM_BYTES
            elif senders is self._old:
                del self._flows[sender]
                continue
            self._old.append(sender)
        return None

    def drop(self, which: Callable[[K], bool]) -> None:
        """Forget what waits of those senders of which that is so."""
        for sender, flow in self._flows.items():
            if which(sender):
                flow.messages.clear()
