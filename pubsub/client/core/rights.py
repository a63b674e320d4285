"""What is refused for good, or denied to this client: what it is told, and what becomes of what it asked for.

What is denied is ended at once, and kept: a put stays in the outbox, a subscription keeps its place and what is here of
it. Nothing is asked for again by itself; the next call does that, and by then there may be the right.
"""

from __future__ import annotations

from shlex import quote
from typing import Final

from pubsub.client.core.doors import Doors
from pubsub.client.core.subscription import Subscription
from pubsub.errors import NotAllowed, PubsubError, Refused
from pubsub.protocol import Outcome, Status
from pubsub.protocol.messages import denial

_SPOKEN: Final = {
    "put": "put to",
    "get": "get from",
    "subscribe": "subscribe to",
    "unsubscribe": "unsubscribe from",
}


def refusal(client: str, operation: str, topic: str, status: Status) -> Refused | NotAllowed:
    """The error for a request that is refused or denied.

    Args:
        client: the client ID.
        operation, topic: what was asked for.
        status: the answer. The body of one that denies is a sentence for a person.
    """
    if status.outcome is Outcome.REFUSED:
        return Refused(operation, topic, status.reason.replace("_", " "))
    return _not_allowed(client, operation, topic, status)


def deny(sub: Subscription, error: PubsubError) -> None:
    """What was asked for is not done. All that is here stays, and its place at the service too."""
    sub.failure = error
    sub.intent.stop_asking()
    sub.timed_out()


def ask_again(doors: Doors, sub: Subscription) -> None:
    """A call asks for something: what was denied, or refused by all proxies, is asked for once more."""
    if doors.closed:
        doors.called = True
    if isinstance(sub.failure, NotAllowed):
        sub.failure = None


def _not_allowed(client: str, operation: str, topic: str, status: Status) -> NotAllowed:
    sentence = denial(status) or f"client {client} may not {_SPOKEN[operation]} {topic}"
    remedy = ""
    if operation == "put":
        command = f"pubsub client {client}"
        remedy = f"the put is kept: ask for the right, then {command} flush, or discard {quote(topic)}"
    return NotAllowed(operation, topic, sentence, remedy)
