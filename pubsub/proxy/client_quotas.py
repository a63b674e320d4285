"""The quotas of clients at one proxy: how much a key puts in a second (docs/explanation/quotas.md, QU4).

A quota is in the client's line of the file `authorized`. The proxies do not tell one another what they let pass, so a
client that uses n proxies may put n times as much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pubsub.base.buckets import Pace
from pubsub.security.access import Access

QUOTA_CLIENT: Final = "quota_client"
"""Reason of an answer to a put above the quota of its client."""

_COUNT: Final = re.compile(rb" count=([0-9]{1,9})[ \r]")


class ClientQuotas:
    """The buckets of the users with a quota, in memory only.

    Args:
        access: the access rules.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._paces: dict[str, Pace] = {}

    def after(self, user: str, quota: tuple[int | None, int | None], now: float) -> int:
        """Return the milliseconds until a put of a user may pass; 0: it may pass now.

        Args:
            user: the user of the key that opened the connection.
            quota: messages and bytes a second, each None for no limit.
            now: the monotonic clock, in seconds.
        """
        pace = self._paces.get(user)
        if pace is None or pace.quota != quota:
            known = self._access.authorized.by_user
            if len(self._paces) >= len(known):  # Some of them are not authorized any more.
                self._paces = {name: pace for name, pace in self._paces.items() if name in known}
            pace = self._paces[user] = Pace(quota, now)
        return pace.after(now)

    def took(self, user: str, head: bytes, size: int) -> None:
        """Count a put that passes.

        Args:
            user: as for `after`, which has returned 0.
            head: prefix and header of the put.
            size: bytes of its body.
        """
        count = _COUNT.search(head)
        self._paces[user].take(1 if count is None else max(1, int(count[1])), size)

    def facts(self) -> Mapping[str, Mapping[str, float]]:
        """Return, by user with a quota, the puts that were put off, and the seconds during which puts waited."""
        return {user: {"puts": one.held, "seconds": round(one.held_seconds, 3)} for user, one in self._paces.items()}
