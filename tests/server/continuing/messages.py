"""The messages between clients and servers of the model."""

from __future__ import annotations

from typing import NamedTuple

from tests.server.continuing.topic import Content, Place, Record


class Put(NamedTuple):
    """A publisher's message, and the one before it."""

    content: Content
    previous: int


class Subscribe(NamedTuple):
    """SUBSCRIBE or UNSUBSCRIBE (not `on`)."""

    name: str
    number: int
    on: bool
    fresh: bool


class Get(NamedTuple):
    """GET of up to `limit` records."""

    name: str
    number: int
    last: Place
    after: Place
    limit: int


class Answer(NamedTuple):
    """What a server says."""

    outcome: str
    acknowledged: Place = ("", 0)
    number: int = 0
    found: tuple[tuple[Place, Record, bool], ...] = ()


Message = Put | Subscribe | Get
