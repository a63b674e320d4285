"""Read dead letters: messages that failed too often and ranges of lost messages, kept for a person to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pubsub.client.arguments import check_truth
from pubsub.client.session import Session
from pubsub.client.storage.interface import ClientStore
from pubsub.client.storage.reading import Reading
from pubsub.protocol import check_topic, decode_headers


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message on which its handler failed too often, or a range of lost messages.

    Attributes:
        topic: the message's topic.
        first, last: message IDs; equal for a single message.
        publisher, counter, stamp, body: of the message; body is None for a range.
        error: the handler's error, or the cause of the loss.
        attempts: number of failed attempts.
        at: time of the move to the dead letters, in seconds since 1970.
        key, headers: of the message, as in `Message`; empty for a range.
    """

    topic: str
    first: str
    last: str
    publisher: str
    counter: int
    stamp: int
    body: bytes | None
    error: str
    attempts: int
    at: float
    key: bytes = b""
    headers: Mapping[str, bytes] = field(default_factory=dict, hash=False)


def dead_letters(session: Session, topic: str | None, *, bodies: bool = True) -> list[DeadLetter]:
    """Return the dead letters of a topic, or all, oldest first."""
    if topic is not None:
        check_topic(topic)
    check_truth("bodies", bodies)
    with session.entered():
        return dead_letters_in(session.store, topic, bodies=bodies)


def dead_letters_in(store: ClientStore | Reading, topic: str | None, *, bodies: bool = True) -> list[DeadLetter]:
    """Read the dead letters from an open state file, oldest first."""
    rows = store.dead_letters(topic, bodies=bodies)
    return [DeadLetter(*(*facts, key or b"", decode_headers(headers or b""))) for *facts, key, headers in rows]
