"""Track the proxies that refuse this client because of a key, or a missing key, on either side.

While some proxies refuse, requests go to the others, and a proxy joins again when it accepts the client. If all proxies
refuse, waiting is useless: every call ends at once with the text of each refusal. A later call asks the proxies again,
unless the last refusal is younger than RETRY_REFUSED_SECONDS. So a client that was authorized in the meantime
continues.

The rule is docs/explanation/protocol.md, V8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.errors import KeyRefused

RETRY_REFUSED_SECONDS: Final = 0.25
"""Least time between the last refusal by all proxies and the next attempt, which a call starts."""


class RefusingProxies:
    """The refusals of all proxies.

    Args:
        proxies: number of proxies.

    Attributes:
        shut: the text of each refusing proxy, by its index.
        closed: True if all proxies refuse.
        called: True if a call began while all proxies refuse.
        knocking: True if the proxies must be asked again; the code that asks resets it.
    """

    def __init__(self, proxies: int) -> None:
        self._proxies = proxies
        self._since = float("-inf")
        self.refusals: dict[int, str] = {}
        self.closed = self.called = self.retry_due = False

    def refused(self, proxy: int, text: str, now: float) -> None:
        """Record a refusal; `text` names the cause and the remedy."""
        self.refusals[proxy] = text
        self._since = now
        self.closed = len(self.refusals) == self._proxies

    def opened(self, proxy: int) -> bool:
        """Record that a proxy no longer refuses; return True if all proxies refused before."""
        before, self.closed = self.closed, False
        self.refusals.pop(proxy, None)
        return before

    def retry(self, now: float) -> None:
        """Let a call that began while all proxies refuse ask them again, unless the last refusal is too recent."""
        self.called = False
        if self.closed and now - self._since >= RETRY_REFUSED_SECONDS:
            self.refusals.clear()
            self.closed, self.retry_due = False, True

    def open_from(self, proxy: int) -> int:
        """Return the first proxy, from this one on, that does not refuse; the same one if all refuse."""
        for step in range(self._proxies):
            if (found := (proxy + step) % self._proxies) not in self.refusals:
                return found
        return proxy

    def check(self) -> None:
        """Raise KeyRefused with the text of each proxy if all of them refuse."""
        texts = dict(self.refusals)  # The thread that drives the sockets may change it meanwhile.
        if self.closed and texts:
            raise KeyRefused("; ".join(texts[proxy] for proxy in sorted(texts)))

    def silence(self, proxies: Sequence[str]) -> str:
        """Describe the state of all proxies for an error without an answer, when not all proxies refuse."""
        refusals = dict(self.refusals)
        mute = [address for proxy, address in enumerate(proxies) if proxy not in refusals]
        return "; ".join(
            [f"no answer from {', '.join(mute)}"] * bool(mute) + [refusals[proxy] for proxy in sorted(refusals)]
        )
