"""The names of notes: what a server remembers of itself in its store, besides topics. Each is text or a number.

A name that ends in a blank is the beginning of many notes' names, one for each topic or store.
"""

from __future__ import annotations

from typing import Final

GIVEN: Final = "given "
"""To whom a topic was given; the topic's name follows."""

HELD: Final = "held "
"""Why a topic is held back; the topic's name follows."""

STALE: Final = "stale"
"""Why the whole store is held back."""

STALE_CHANGE: Final = "stale change"
"""The change number that a proxy knew of then."""

ACCEPTED: Final = "restored"
"""This store is a copy that was said to be all there is."""

DRAINING: Final = "draining"
"""The server is to be given no new topic."""

STORE: Final = "store "
"""Another store of the cluster; its ID follows. The value: incarnation and server."""

GONE: Final = "gone "
"""A store that is gone; its ID follows. The value: up to which incarnation."""

UNHEARD: Final = "unheard "
"""Too few proxies have confirmed to have heard that a topic is held here; the topic's name follows."""

PORT: Final = "port"
"""The port that the server had, where it was left to chance."""
