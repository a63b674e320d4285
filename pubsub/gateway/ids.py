"""Message IDs in HTTP: store and counter of the publisher, known before a server has the message.

An ID is `STORE-COUNTER`: sixteen hex digits that name the publisher's store, and the message's counter. Puts, polls,
streams and webhooks show the same ID, and no two messages share one.
"""

from __future__ import annotations

from collections.abc import Sequence


def message_id(publisher: str, counter: int) -> str:
    """Return the ID of a message.

    Args:
        publisher: `client ID/store ID`, as subscribers see it.
        counter: of the message.
    """
    return f"{publisher.rpartition('/')[2]}-{counter}"


def ranges(counters: Sequence[int]) -> list[tuple[int, int]]:
    """Return rising counters as runs without a gap: (first, length)."""
    if isinstance(counters, range):
        return [(counters.start, len(counters))] if counters else []
    found: list[tuple[int, int]] = []
    for counter in counters:
        if found and sum(found[-1]) == counter:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((counter, 1))
    return found
