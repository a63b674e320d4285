"""Requests that last: streams, long polls and the page's events end when their token loses the right that they need."""

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
    """A request that lasts: by which token it came, as whom, and the right that it needs."""

    token: str | None
    name: str
    needs: Needs
    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """Who may do what, and the requests that last.

    Args:
        users: who may do what.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._lasting: set[_Lasting] = set()

    @property
    def users(self) -> Users:
        """Who may do what."""
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
        """An event that is set when the right is lost, in the block.

        Args:
            token: that the request came with; user: whose it was then.
            needs: whether a user has the right.
        """
        one = _Lasting(token, user.name, needs)
        self._lasting.add(one)
        if not self._still(token, user.name, needs):  # Since its token was looked at.
            one.lost.set()
        try:
            yield one.lost
        finally:
            self._lasting.discard(one)

    def check(self, token: str | None, user: User, needs: Needs) -> None:
        """See that a request that took its time still has its right.

        Raises:
            Problem: it has not.
        """
        if not self._still(token, user.name, needs):
            raise revoked()


def revoked() -> Problem:
    """The answer to a request whose token lost its right meanwhile."""
    text = "This token is known no longer, or has lost the right to this."
    return Problem("not-authenticated", text, {"www-authenticate": "Bearer"})
