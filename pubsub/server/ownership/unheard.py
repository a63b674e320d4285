"""Topics that were opened here and of which too few proxies are known to have heard: answers about them wait.

An announcement goes before the answers of its loop, on the same connection, so the proxy that passes an answer on knows
who holds the topic. But a connection that is reset may lose the one and bring the other. If then this server and that
proxy ended before the next announcement, nobody would know of the topic: it would be begun elsewhere as one that nobody
ever held, and what was acknowledged here would be behind a log that seems to be gone. So answers wait until
(N + 1) // 2 of N proxies, the topic's witnesses, have confirmed that they heard, durably. A server that is to be the
sole owner of a topic needs the word of N // 2 + 1 proxies: a witness is always among them.

One process may hear of one witness and die, and the next one of another. Where one is too few the topic is noted in the
store, in the commit that opens it, and the next process waits for its witnesses again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pubsub.protocol.messages import Status, Transfer
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State

Answer = Status | Transfer

HELD_MAX: Final = 1_000
"""Answers that wait; a further one is dropped, and its request asked again."""

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of bodies in them."""


class Unheard:
    """What waits for a proxy to confirm.

    Args:
        state: the server's; it notes the topics that wait.
        proxies: which are told, and which have confirmed.
        again_seconds: for which a topic waits before all is announced anew, and what waits is dropped: it is asked
            again.
        now: monotonic seconds.
    """

    def __init__(self, state: State, proxies: Proxies, again_seconds: float, now: float) -> None:
        self._state, self._proxies, self._again_seconds = state, proxies, again_seconds
        self._topics = {name: (state.change, now + again_seconds) for name in state.unheard if name in state.topics}
        """With our change number as they were announced, and when all is announced anew if nobody confirms that."""
        self._held: list[tuple[Origin, Answer]] = []
        self._bytes = 0
        self._look()

    def announced(self, topics: dict[str, str], change: int, now: float) -> None:
        """Topics were announced.

        Args:
            topics: with what was said of each, as in `Periodic`.
            change: our change number with it.
            now: monotonic seconds.
        """
        for topic, value in topics.items():
            if value and "." not in value and change > self._proxies.heard_change:
                self._topics[topic] = change, now + self._again_seconds
            elif self._topics.pop(topic, None) is not None:  # Whoever has it now is asked again.
                self._keep(topic.__ne__)
        self._look()

    def holds(self, origin: Origin, answer: Answer) -> bool:
        """Whether an answer waits, or was dropped; else it may be sent."""
        if not self._topics or origin.topic not in self._topics:
            return False
        size = len(answer.body)
        if len(self._held) < HELD_MAX and self._bytes + size <= HELD_BYTES_MAX:
            self._held.append((origin, answer))
            self._bytes += size
        return True

    def confirmed(self) -> None:
        """A proxy has confirmed an announcement: note of which topics enough have heard now."""
        heard, state = self._proxies.heard_change, self._state
        if any(change <= heard for change, _ in self._topics.values()):
            self._topics = {topic: one for topic, one in self._topics.items() if one[0] > heard}
            self._look()  # Those that are left were announced later: each has its time.
        # A topic that was opened in this very loop is announced behind its commit, and waits from then on.
        for topic in [one for one in state.unheard if one not in self._topics and one not in state.announcements]:
            state.forget_unheard(topic)

    def take(self) -> list[tuple[Origin, Answer]]:
        """What need not wait any more."""
        free = [one for one in self._held if one[0].topic not in self._topics]
        if free:
            self._keep(self._topics.__contains__)
        return free

    def tick(self, now: float) -> None:
        """Where nobody has confirmed for so long, announce all anew to the proxies that are there."""
        if now < self._again:
            return
        # An answer about a topic that was heard meanwhile waits for `take` only.
        self._keep(lambda one: one not in self._topics or self._topics[one][1] > now)
        again = now + self._again_seconds
        self._topics = {topic: (change, again) for topic, (change, _) in self._topics.items()}
        self._look()
        self._proxies.announce_all(now, alive=True)

    def deadline(self) -> float:
        """When `tick` has something to do."""
        return self._again

    def _look(self) -> None:
        """See when all is to be announced anew."""
        self._again = min((again for _, again in self._topics.values()), default=float("inf"))

    def _keep(self, topic: Callable[[str], bool]) -> None:
        """Have no answers wait but those about topics of which that is so."""
        self._held = [one for one in self._held if topic(one[0].topic)]
        self._bytes = sum(len(answer.body) for _, answer in self._held)
