"""Ends long requests (streams, long polls, the page's events) when their token loses the right that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pubsub.gateway.problems import Problem
from pubsub.web.tokens import User, Users

Needs = Callable[[User], bool]


@dataclass(eq=False)
class _Lasting:
    """A long request: its token, its user, and the right that it needs."""

    token: str | None
    name: str
    needs: Needs
    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """The users with their rights, and the long requests.

    Args:
        users: at the start.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._lasting: set[_Lasting] = set()

    @property
    def users(self) -> Users:
        return self._users

    @users.setter
    def users(self, users: Users) -> None:
        self._users = users
        for one in self._lasting:
            if not self._still(one.token, one.name, one.needs):
                one.lost.set()

    def _still(self, token: str | None, name: str, needs: Needs) -> bool:
        found = self._users.find(token)
        return found is not None and found.name == name and needs(found)

    @contextmanager
    def lasting(self, token: str | None, user: User, needs: Needs) -> Iterator[asyncio.Event]:
        """Yield an event that is set if the right is lost during the block.

        Args:
            token: of the request; user: its user when the request arrived.
            needs: whether a user has the right.
        """
        one = _Lasting(token, user.name, needs)
        self._lasting.add(one)
        if not self._still(token, user.name, needs):  # The right may be lost since the token was checked.
            one.lost.set()
        try:
            yield one.lost
        finally:
            self._lasting.discard(one)

    def check(self, token: str | None, user: User, needs: Needs) -> None:
        """Check that a slow request still has its right.

        Raises:
            Problem: it has not.
        """
        if not self._still(token, user.name, needs):
            raise revoked()


def revoked() -> Problem:
    """Return the response to a request that has lost its right."""
    text = "The token was revoked, or has lost the right to this."
    return Problem("not-authenticated", text, {"www-authenticate": "Bearer"})
