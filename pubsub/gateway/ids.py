"""How HTTP names messages: by who put them and the number they had there, which is known before a server has them.

An ID is `STORE-COUNTER`: sixteen hex digits that name the publisher's state, and the publisher's number of the message.
It is the same when a message is put, polled, streamed and delivered to a webhook, and no two messages share one.
"""

from __future__ import annotations

from collections.abc import Sequence


def message_id(publisher: str, counter: int) -> str:
    """The ID of a message.

    Args:
        publisher: `client ID/store ID`, as subscribers see it.
        counter: the publisher's number of it.
    """
    return f"{publisher.rpartition('/')[2]}-{counter}"


def ranges(counters: Sequence[int]) -> list[tuple[int, int]]:
    """Rising counters as runs without a gap: (first, how many)."""
    if isinstance(counters, range):
        return [(counters.start, len(counters))] if counters else []
    found: list[tuple[int, int]] = []
    for counter in counters:
        if found and sum(found[-1]) == counter:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((counter, 1))
    return found
