"""Unconfirmed announcements: answers about a new topic wait until enough proxies have confirmed that it is held here.

A server sends an announcement before the answers of its loop, on the same connection. So the proxy that forwards an
answer knows the topic's holder. But a connection that is reset may lose the announcement and deliver the answer. If
this server and that proxy both end before the next announcement, no process knows of the topic. Another server would
begin it as a new topic, and the acknowledged messages here would be after a log that seems to be gone.

So answers wait until (N + 1) // 2 of N proxies, the topic's witnesses, have confirmed the announcement durably. A sole
owner needs the answers of N // 2 + 1 proxies, and these always include a witness.

One process may get a confirmation from one witness and die, and the next process from another witness. If one witness
is too few, the commit that opens the topic also notes it in the store. The next process then waits for its witnesses
again.

The rules are those of docs/explanation/ownership.md, O8 and O9; docs/explanation/put.md, P13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pubsub.protocol.messages import Status
from pubsub.protocol.transfers import Transfer
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State

Answer = Status | Transfer

HELD_MAX: Final = 1_000
"""Most waiting answers; a further answer is dropped, and the client repeats its request."""

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes of bodies in waiting answers."""


class UnconfirmedAnnouncements:
    """The answers that wait for confirmations of proxies.

    Args:
        state: notes the waiting topics.
        proxies: receive the announcements and confirm them.
        again_seconds: time after which a waiting topic causes complete announcements, and its waiting answers are
            dropped, because clients repeat their requests.
        now: monotonic seconds.
    """

    def __init__(self, state: State, proxies: Proxies, again_seconds: float, now: float) -> None:
        self._state, self._proxies, self._again_seconds = state, proxies, again_seconds
        self._topics = {name: (state.change, now + again_seconds) for name in state.unconfirmed if name in state.topics}
        """By topic: our change number at its announcement, and the time of complete announcements if none confirms."""
        self._held: list[tuple[Origin, Answer]] = []
        self._bytes = 0
        self._look()

    def announced(self, topics: dict[str, str], change: int, now: float) -> None:
        """Let answers about announced topics wait for confirmations.

        Args:
            topics: each with its value, as in `Periodic`.
            change: our change number after the announcement.
            now: monotonic seconds.
        """
        for topic, value in topics.items():
            if value and "." not in value and change > self._proxies.durable_change:
                self._topics[topic] = change, now + self._again_seconds
            elif self._topics.pop(topic, None) is not None:  # The client repeats its request to the present holder.
                self._keep(topic.__ne__)
        self._look()

    def holds(self, origin: Origin, answer: Answer) -> bool:
        """Return True if the answer is held or dropped, False if it can be sent now."""
        if not self._topics or origin.topic not in self._topics:
            return False
        size = len(answer.body)
        if len(self._held) < HELD_MAX and self._bytes + size <= HELD_BYTES_MAX:
            self._held.append((origin, answer))
            self._bytes += size
        return True

    def confirmed(self) -> None:
        """Release the topics that enough proxies have confirmed by now."""
        durable, state = self._proxies.durable_change, self._state
        if any(change <= durable for change, _ in self._topics.values()):
            self._topics = {topic: one for topic, one in self._topics.items() if one[0] > durable}
            self._look()  # The remaining topics were announced later and keep their times.
        # A topic opened in this very loop is announced after its commit, and waits from then on.
        for topic in [one for one in state.unconfirmed if one not in self._topics and one not in state.announcements]:
            state.forget_unconfirmed(topic)

    def take(self) -> list[tuple[Origin, Answer]]:
        """Return the answers that need not wait any more."""
        free = [one for one in self._held if one[0].topic not in self._topics]
        if free:
            self._keep(self._topics.__contains__)
        return free

    def tick(self, now: float) -> None:
        """Make complete announcements to the proxies that answer, if no confirmation came in time."""
        if now < self._again:
            return
        # Answers about topics confirmed meanwhile stay for `take`.
        self._keep(lambda one: one not in self._topics or self._topics[one][1] > now)
        again = now + self._again_seconds
        self._topics = {topic: (change, again) for topic, (change, _) in self._topics.items()}
        self._look()
        self._proxies.announce_all(now, alive=True)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        return self._again

    def _look(self) -> None:
        """Compute the time of the next complete announcements."""
        self._again = min((again for _, again in self._topics.values()), default=float("inf"))

    def _keep(self, topic: Callable[[str], bool]) -> None:
        """Keep only the held answers with a topic that satisfies `topic`."""
        self._held = [one for one in self._held if topic(one[0].topic)]
        self._bytes = sum(len(answer.body) for _, answer in self._held)
