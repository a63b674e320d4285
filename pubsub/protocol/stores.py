"""The roster of stores: who is there at all, so that nobody who has forgotten it takes what he sees for everything.

A *store* is a server's data directory. Which stores a cluster has is known to its proxies (they have heard them) and,
for the day on which every proxy starts with an empty directory, to each server too: proxies tell servers in their
answers to announcements, servers tell proxies in their announcements. Everybody keeps what he was told. So any one of
them that is left knows whom to wait for.

What each of them knows is merged, in whatever order it comes:

    known   a store, and an incarnation of its server that was heard of
    gone    a store, and the incarnation up to which it counts as gone: an operator said so (`pubsub server forget`), or
            its server was drained, held nothing, and left

A store is in the roster where it is known with a higher incarnation than it is gone with: a server that comes back
after all has started again, and is in the roster again. An incarnation grows with every start of a server. One that was
forgotten while it could not be heard may come back without a start: it is known with the incarnation above that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.names import is_hex, is_id

STORES_MAX: Final = 256
"""Stores of one roster; as many as a proxy knows."""

GONE_MAX: Final = 128
"""Stores that are remembered as gone; beyond it the one that went first is forgotten, and waited for if it is known."""

WORD_LENGTH_MAX: Final = 8192
"""Characters of a roster in a header; a longer one goes without the servers' names, which are for people."""


class Known(NamedTuple):
    """What is known of a store.

    Attributes:
        server: ID of the server that had it last, "" where that is not known.
        incarnation: of that server.
    """

    server: str
    incarnation: int


def format_stores(stores: Mapping[str, Known]) -> str:
    """A roster as one word, `store.incarnation.server` in hex, separated by commas."""
    listed = sorted(stores.items())
    word = ",".join(f"{store}.{known.incarnation:x}.{known.server}" for store, known in listed)
    if len(word) <= WORD_LENGTH_MAX:
        return word
    return ",".join(f"{store}.{known.incarnation:x}." for store, known in listed)


def parse_stores(word: str) -> dict[str, Known]:
    """The roster that `format_stores` wrote.

    Raises:
        ValueError: the word is something else.
    """
    stores: dict[str, Known] = {}
    if len(word) > WORD_LENGTH_MAX:
        raise ValueError(f"a roster of {len(word)} characters")
    for part in word.split(",") if word else ():
        store, incarnation, server = [*part.split(".", 2), "", ""][:3]
        number = int(incarnation, 16) if incarnation.isalnum() else -1
        if not is_hex(store) or not 0 <= number <= NUMBER_MAX or (server and not is_id(server)):
            raise ValueError(f"not a store, an incarnation and a server: {part[:100]!r}")
        stores[store] = Known(server, number)
    return stores


def is_roster(word: str) -> bool:
    """Whether a word is one that `parse_stores` takes."""
    try:
        parse_stores(word)
    except ValueError:
        return False
    return True
