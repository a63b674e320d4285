"""The store directory: the list of all stores, by which a process that lost its memory knows that its view is partial.

A *store* is a server's data directory. The proxies know the stores of a cluster, because the servers announce
themselves. The servers know them too, for the case that every proxy starts with an empty directory. Proxies send them
to servers in their answers to announcements, and servers send them to proxies in announcements. Each process keeps the
list that it received. So any single process that is left knows the stores to wait for.

Each process merges two kinds of facts, in any order:

    known   a store, and a known incarnation of its server
    gone    a store, and the incarnation up to which it counts as removed: an operator removed it
            (`pubsub server forget`), or its server was drained, held nothing, and left

A store is in the directory if its known incarnation is higher than its removed one. An incarnation rises with every
start of a server. So a removed server that starts again is in the directory again. A store that was removed during a
disconnection may come back without a restart. It is then known with the next incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.names import is_hex, is_id

STORES_MAX: Final = 256
"""Limit of stores in a directory, equal to that of a proxy."""

GONE_MAX: Final = 128
"""Limit of removed stores. Beyond it the oldest is forgotten; if it is still known, proxies wait for it."""

WORD_LENGTH_MAX: Final = 8192
"""Limit of characters of a directory in a header. A longer one is sent without server IDs, which only people need."""


class Known(NamedTuple):
    """A known store.

    Attributes:
        server: ID of the last server with it, "" if unknown.
        incarnation: of that server.
    """

    server: str
    incarnation: int


def format_stores(stores: Mapping[str, Known]) -> str:
    """Return a store directory as one word: `store.incarnation.server`, separated by commas, the incarnation in hex."""
    listed = sorted(stores.items())
    word = ",".join(f"{store}.{known.incarnation:x}.{known.server}" for store, known in listed)
    if len(word) <= WORD_LENGTH_MAX:
        return word
    return ",".join(f"{store}.{known.incarnation:x}." for store, known in listed)


def parse_stores(word: str) -> dict[str, Known]:
    """Return the store directory that `format_stores` wrote.

    Raises:
        ValueError: the word is none.
    """
    stores: dict[str, Known] = {}
    if len(word) > WORD_LENGTH_MAX:
        raise ValueError(f"a store directory of {len(word)} characters")
    for part in word.split(",") if word else ():
        store, incarnation, server = [*part.split(".", 2), "", ""][:3]
        number = int(incarnation, 16) if incarnation.isalnum() else -1
        if not is_hex(store) or not 0 <= number <= NUMBER_MAX or (server and not is_id(server)):
            raise ValueError(f"not a store, an incarnation and a server: {part[:100]!r}")
        stores[store] = Known(server, number)
    return stores


def is_store_directory(word: str) -> bool:
    """Return whether `parse_stores` accepts a word."""
    try:
        parse_stores(word)
    except ValueError:
        return False
    return True
