"""Choose the next proxy for a request, and the time for its answer.

A request is tried three times at a proxy, then at the next one, around and around. The time for a try doubles with each
round (docs/explanation/protocol.md, V6). The first proxy is the one that answered last.
"""

from __future__ import annotations

from typing import Final

from pubsub.client.core.refusing_proxies import RefusingProxies

TRY_SECONDS_MAX: Final = 5.0
"""Longest time for a try, so that the client notices a service that comes back."""


class Retries:
    """The tries of one request.

    Args:
        proxies: number of proxies.
        tries: tries at one proxy before the next.
        seconds: time for a try in the first round.
        proxy: index of the first proxy.
        doors: the refusing proxies, which are skipped while another one accepts.

    Attributes:
        proxy: index of the present proxy.
        failed: number of tries without an answer that settles the request.
    """

    __slots__ = ("_first", "_proxies", "_refusing", "_seconds", "_tries", "failed", "proxy")

    def __init__(
        self, proxies: int, tries: int, seconds: float, proxy: int = 0, refusing: RefusingProxies | None = None
    ) -> None:
        self._proxies, self._tries, self._seconds = proxies, tries, seconds
        self._refusing = refusing or RefusingProxies(proxies)
        self.restart(proxy)

    def restart(self, proxy: int) -> None:
        """Begin anew at this proxy after a success."""
        self._first = self.proxy = proxy
        self.failed = 0

    def renew(self, proxy: int) -> None:
        """Begin the time for tries anew for a new call, but do not return to proxies that just failed."""
        if self.failed:
            self.failed %= self._tries * self._proxies
        else:
            self.restart(proxy)

    @property
    def patience(self) -> float:
        """Seconds for the present try."""
        rounds = min(self.failed // (self._tries * self._proxies), 30)
        return min(self._seconds * float(1 << rounds), max(TRY_SECONDS_MAX, self._seconds))

    def fail(self) -> None:
        """Count a failed try."""
        self.failed += 1
        self.proxy = self._refusing.open_from((self._first + self.failed // self._tries) % self._proxies)

    def refused(self) -> None:
        """Move to a proxy that does not refuse; the time for a try stays."""
        self.proxy = self._refusing.open_from(self.proxy)
