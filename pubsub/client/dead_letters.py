"""What could not be handed out, or not be handled: kept beside the subscriptions, for a person to look at."""

from __future__ import annotations

from dataclasses import dataclass

from pubsub.client.session import Session
from pubsub.protocol import check_topic


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


def dead_letters(session: Session, topic: str | None) -> list[DeadLetter]:
    """The dead letters of a topic, or all, oldest first."""
    if topic is not None:
        check_topic(topic)
    with session.entered():
        return [DeadLetter(*row) for row in session.store.dead_letters(topic)]
