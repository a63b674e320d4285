"""Which proxy is asked next, and how long it is given.

Three tries at a proxy, then the next one, around and around; the patience of a try doubles with each round
(docs/architecture.md, *Answers*). It starts at the proxy that worked last.
"""

from __future__ import annotations

from typing import Final

from pubsub.client.core.doors import Doors

TRY_SECONDS_MAX: Final = 5.0
"""A try is never given longer than this, so that a service that comes back is noticed."""


class Retries:
    """The tries of one request.

    Args:
        proxies: how many there are.
        tries: at one proxy before the next.
        seconds: patience of a try in the first round.
        proxy: index of the first to ask.
        doors: which of them refuse, and are left out while another does not.

    Attributes:
        proxy: whom to ask now.
        failed: tries without an answer that settles the request.
    """

    __slots__ = ("_doors", "_first", "_proxies", "_seconds", "_tries", "failed", "proxy")

    def __init__(self, proxies: int, tries: int, seconds: float, proxy: int = 0, doors: Doors | None = None) -> None:
        self._proxies, self._tries, self._seconds = proxies, tries, seconds
        self._doors = doors or Doors(proxies)
        self.restart(proxy)

    def restart(self, proxy: int) -> None:
        """Something worked: begin anew, at this proxy."""
        self._first = self.proxy = proxy
        self.failed = 0

    def renew(self, proxy: int) -> None:
        """A new call: patience begins anew, but what failed is not tried again first."""
        if self.failed:
            self.failed %= self._tries * self._proxies
        else:
            self.restart(proxy)

    @property
    def patience(self) -> float:
        """Seconds that the present try is given."""
        rounds = min(self.failed // (self._tries * self._proxies), 30)
        return min(self._seconds * float(1 << rounds), max(TRY_SECONDS_MAX, self._seconds))

    def fail(self) -> None:
        """The present try came to nothing."""
        self.failed += 1
        self.proxy = self._doors.open_from((self._first + self.failed // self._tries) % self._proxies)

    def refused(self) -> None:
        """A proxy refuses: where it is the one to ask, another one is, with the patience that there was."""
        self.proxy = self._doors.open_from(self.proxy)
