"""What could not be handed out, or not be handled: kept beside the subscriptions, for a person to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pubsub.client.session import Session
from pubsub.client.storage.reading import Reading
from pubsub.protocol import check_topic, decode_headers


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that its handler failed on too often, or a range that is lost.

    Attributes:
        topic: where it was put.
        first, last: message IDs; the same for a message.
        publisher, counter, stamp, body: of the message; body is None for a range.
        error: why it is here.
        attempts: of the handler.
        at: when it came here, seconds since 1970.
        key, headers: of the message, as `Message` has them; nothing for a range.
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


def dead_letters(session: Session, topic: str | None) -> list[DeadLetter]:
    """The dead letters of a topic, or all, oldest first."""
    if topic is not None:
        check_topic(topic)
    with session.entered():
        return letters_in(session.store, topic)


def letters_in(store: Reading, topic: str | None) -> list[DeadLetter]:
    """The dead letters in a state file."""
    rows = store.dead_letters(topic)
    return [DeadLetter(*(*facts, key or b"", decode_headers(headers or b""))) for *facts, key, headers in rows]
