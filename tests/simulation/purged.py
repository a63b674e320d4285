"""The purges of a run, the messages that they cover, and the judgement on those of a new reader (see `purging`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pubsub.errors import DataLoss
from pubsub.protocol import Outcome, Records
from pubsub.protocol.names import EARLIEST
from pubsub.server.topic.delivery import collect
from pubsub.server.topic.start import cursor_at

if TYPE_CHECKING:
    from pubsub.server.state.state import State
    from pubsub.server.topic.topic import Topic
    from tests.simulation.fate import Fate
    from tests.simulation.history import History, Put

COPIES = ("copy", "put back", "old copy", "replace", "empty", "abandon", "flip", "lose routes")
"""Faults after which purged messages may come back, or a part of a topic is given up."""


@dataclass
class Purged:
    """A purge.

    Attributes:
        began: time of its first request; known_at: time of the answer with the places.
        answered: True if the operator knows that it was carried out.
    """

    topic: str
    unread: bool
    began: float
    places: dict[str, int] = field(default_factory=dict)
    known_at: float = float("inf")
    answered: bool = False


class Purges:
    """All purges of a run."""

    def __init__(self) -> None:
        self.all: list[Purged] = []

    def of(self, topic: str, *, unread: bool) -> list[Purged]:
        """Return purges of a topic with known places; `unread`: only those of unread messages."""
        return [one for one in self.all if one.topic == topic and one.places and one.unread >= unread]

    def place(self, log: str, *, unread: bool) -> int:
        """Return the offset below which a log may be purged."""
        known = (one for one in self.all if one.unread >= unread)
        return max((one.places.get(log, 0) for one in known), default=0)

    def last(self, topic: str, *, unread: bool) -> float:
        """Return the time until which puts to a topic may be covered by a purge."""
        return max((one.known_at for one in self.of(topic, unread=unread)), default=-1.0)

    def covers(self, error: DataLoss) -> bool:
        """Return True if a loss that a subscriber was told is below the places of a purge of unread messages."""
        log, _, last = error.last.partition(".")
        return error.first.startswith(f"{log}.") and int(last) < self.place(log, unread=True)

    def beyond(self, topic: str, puts: Iterable[Put]) -> list[Put]:
        """Return the puts that no purge of unread messages covers."""
        until = self.last(topic, unread=True)
        return [put for put in puts if put.invoked > until]


def judge_shown(history: History, fate: Fate, topic: str, bodies: set[str]) -> None:
    """Object to a purged message that a new reader of a topic gets in the end.

    Args:
        bodies: all that it gets.
    """
    if topic in history.given_up or set(COPIES) & fate.faults.keys():
        return
    began = max((one.began for one in history.purges.of(topic, unread=True) if one.answered), default=-1.0)
    for body in sorted(bodies & history.puts.keys()):
        put = history.puts[body]
        if put.acked_at is not None and put.acked_at < began and not put.due:  # A purge leaves delayed ones.
            history.violate(f"{body} of {topic} is there, though a purge that began at {began:.3f} was answered")


def read_all(topic: Topic, state: State) -> tuple[set[str], list[str]]:
    """Return the bodies that a new reader of a topic's begin gets, and the ranges that it is told are lost."""
    bodies, losses = read_list(topic, state)
    return set(bodies), losses


def read_list(topic: Topic, state: State) -> tuple[list[str], list[str]]:
    """Return the same with each body as often as it comes, in order."""
    cursor = cursor_at(topic, EARLIEST, 0, 0, state.reader)
    assert cursor is not None
    spans = cursor.backlog
    bodies: list[str] = []
    losses: list[str] = []
    while True:
        answer = collect(topic, spans, state.reader, state.publishers.names, 50, 100_000)
        if answer.outcome is Outcome.EMPTY and answer.rest is not None and answer.rest != spans:
            spans = answer.rest
            continue
        if answer.outcome is Outcome.LOST:
            losses.append(f"{answer.first} to {answer.last}")
        if answer.outcome is not Outcome.SUCCESS:
            return bodies, losses
        bodies += [bytes(body).decode() for body in Records(answer.body).bodies()]
        rest = topic.reading(type(cursor)(0, cursor.acknowledged, spans), answer.last)
        assert rest is not None
        spans = rest


def lost_range(error: DataLoss) -> tuple[str, int, int]:
    """The log, and the first and last offset, of a report of a loss."""
    log, _, first = error.first.partition(".")
    return log, int(first), int(error.last.partition(".")[2])
