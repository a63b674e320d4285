"""Readers of a topic's history, and the comparison of each start at the last N with the records that a server shows.

A reader gets each record once until it is told to begin again, and in the end all that is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from pubsub.protocol import Outcome, Position, Read, Records, Status
from pubsub.protocol.names import EARLIEST, Start, last_records
from pubsub.server.requests import subscriptions
from pubsub.server.topic.delivery import collect
from pubsub.server.topic.start import cursor_at
from tests.simulation.history import ACKED, History
from tests.simulation.tasks import Task
from tests.simulation.world import Host, World

SHOWN_MAX = 100_000


class Looker(Task):
    """Reads a topic along its history without a subscription, from its begin, again and again."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], history: History, topic: str) -> None:
        super().__init__(world, host, proxies, history, topic)
        self._again()

    def _again(self) -> None:
        self.bodies: list[str] = []
        self._after: Position | None = None
        self._history = ""

    def go(self) -> None:
        self._again()
        self._read()

    def _read(self) -> None:
        read = Read(self.name, self.topic, self._after, start=0, history=self._history, records_max=5)
        self.ask(read, self._got)

    def _got(self, status: Status) -> None:
        self.finished = False
        if status.outcome is Outcome.AGAIN:
            self.history.counters["histories read again"] += 1
            self._again()
        elif status.outcome in {Outcome.SUCCESS, Outcome.LOST}:
            if status.outcome is Outcome.SUCCESS:
                self._take([bytes(body).decode() for body in Records(bytes(status.body)).bodies()])
            self._after, self._history = status.message, status.history
        elif status.outcome is Outcome.BEHIND:  # Records after the position were let go.
            self._again()
        elif status.outcome is Outcome.EMPTY:
            self.finished = self.finishing
            if not self.finishing and self.world.random.random() < 0.3:
                self._again()
            elif status.message is not None:
                self._after, self._history = status.message, status.history
        self.soon(0.1 if self.finished else self.world.random.expovariate(1 / self.world.fate.think), self._read)

    def _take(self, bodies: list[str]) -> None:
        for body in bodies:
            if body in self.bodies:
                self.history.violate(f"{self.name} read {body} of {self.topic} twice along one history")
            self.bodies.append(body)

    def settled(self) -> str:
        return "" if self.finished else f"{self.name} has not read all of {self.topic}"

    def judge(self, kept_since: float) -> None:
        """Object to kept messages that it has not read."""
        for put in self.history.states((ACKED,)):
            if put.topic == self.topic and put.invoked > kept_since and put.body not in self.bodies:
                self.history.violate(f"{self.name} never read {put.body}, put at {put.invoked:.3f}")


@contextlib.contextmanager
def watched_starts(history: History) -> Iterator[None]:
    """Compare each start at the last N with the records that the server shows, one by one."""
    original = subscriptions.cursor_at

    def seen(topic: Any, start: Start, stamp: int, skew: int, reader: Any) -> Any:
        cursor = original(topic, start, stamp, skew, reader)
        count = last_records(start)
        if count and cursor is not None:
            newest = reader.newest(topic.open.number, topic.open.low, topic.open.end - 1)
            unstored = topic.open.end - (topic.open.low if newest is None else newest[0] + newest[1])
            whole = cursor_at(topic, EARLIEST, 0, 0, reader)
            assert whole is not None
            shown, mine = _places(topic, whole.backlog, reader), _places(topic, cursor.backlog, reader)
            if mine != shown[len(shown) - min(len(shown), max(0, count - unstored)) :]:
                history.violate(f"{start} of {topic.name} begins at {mine[:1]}, of {len(shown)} shown records")
        return cursor

    with mock.patch.object(subscriptions, "cursor_at", seen):
        yield


def _places(topic: Any, spans: Any, reader: Any) -> list[Position]:
    names = [f"p/{0:016x}"] * SHOWN_MAX
    out: list[Position] = []
    while spans:
        answer = collect(topic, spans, reader, names, 50, 100_000)
        if answer.outcome is Outcome.SUCCESS:
            out += [(run.log, run.offset + at) for run in Records(answer.body).runs for at in range(len(run.ends))]
        elif answer.rest is None or answer.rest == spans:
            return out
        if answer.rest is not None:
            spans = answer.rest
        else:
            assert answer.last is not None
            index = next(n for n, span in enumerate(spans) if span.log == answer.last[0] and span.holds(answer.last[1]))
            spans = (spans[index].from_offset(answer.last[1] + 1), *spans[index + 1 :])
    return out
