"""Describe a dead letter in the headers of its message on the topic of dead letters.

The rule is docs/explanation/retries.md, J10.
"""

from __future__ import annotations

from typing import Final

from pubsub.base.limits import MESSAGE_HEADERS_BYTES_MAX, MESSAGE_HEADERS_MAX
from pubsub.client.core.changes import DeadLettered
from pubsub.protocol import decode_headers

ERROR_BYTES_MAX: Final = 1_000
"""Bytes of the error in the headers; the client's table has all of it."""


def letter_headers(letter: DeadLettered) -> dict[str, bytes]:
    """Return the headers of a dead letter: where it is from, why it failed, and its own ones if there is room.

    `topic`, `id`, `publisher`, `counter`, `stamp`, `error` and `attempts` replace own headers of these names.
    """
    facts = {
        "topic": letter.topic.encode(),
        "id": letter.first.encode(),
        "publisher": letter.publisher.encode(),
        "counter": str(letter.counter).encode(),
        "stamp": str(letter.stamp).encode(),
        "error": letter.error.encode("utf-8", "replace")[:ERROR_BYTES_MAX],
        "attempts": str(letter.attempts).encode(),
    }
    both = decode_headers(letter.headers) | facts
    size = sum(3 + len(name) + len(value) for name, value in both.items())
    return both if len(both) <= MESSAGE_HEADERS_MAX and size <= MESSAGE_HEADERS_BYTES_MAX else facts
