"""Which proxies refuse this client, for the keys that there are on both sides or that one of them lacks.

One that refuses is left out of turn while another does not, and comes back by itself when it lets us in. Where all of
them refuse nobody can be waited for, so every call ends at once with what each of them said. A call that begins later
asks once more, unless the last refusal is younger than KNOCK_SECONDS: so who is authorized meanwhile just goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.errors import NotLetIn

KNOCK_SECONDS: Final = 0.25
"""Proxies that all refuse are asked again by a call at the earliest so long after the last of them did."""


class Doors:
    """What is known of each proxy's door.

    Args:
        proxies: how many there are.

    Attributes:
        shut: what each proxy that refuses said, by its index.
        closed: all of them refuse.
        called: a call began while all of them refuse.
        knocking: they are to be asked again; whoever does that clears it.
    """

    def __init__(self, proxies: int) -> None:
        self._proxies = proxies
        self._since = float("-inf")
        self.shut: dict[int, str] = {}
        self.closed = self.called = self.knocking = False

    def refused(self, proxy: int, text: str, now: float) -> None:
        """A proxy refuses; `text` says why, and what to do."""
        self.shut[proxy] = text
        self._since = now
        self.closed = len(self.shut) == self._proxies

    def opened(self, proxy: int) -> bool:
        """Nothing stands against a proxy any more; whether no other one let us in before."""
        before, self.closed = self.closed, False
        self.shut.pop(proxy, None)
        return before

    def knock(self, now: float) -> None:
        """A call began while all refuse: have them asked again, if that was not just now."""
        self.called = False
        if self.closed and now - self._since >= KNOCK_SECONDS:
            self.shut.clear()
            self.closed, self.knocking = False, True

    def open_from(self, proxy: int) -> int:
        """The first proxy from this one on that does not refuse; itself where all of them do."""
        for step in range(self._proxies):
            if (found := (proxy + step) % self._proxies) not in self.shut:
                return found
        return proxy

    def check(self) -> None:
        """See that not all of them refuse.

        Raises:
            NotLetIn: they do, and for each what it said.
        """
        texts = dict(self.shut)  # The thread that drives the sockets may change it meanwhile.
        if self.closed and texts:
            raise NotLetIn("; ".join(texts[proxy] for proxy in sorted(texts)))

    def silence(self, proxies: Sequence[str]) -> str:
        """What to say where none of the proxies at these addresses answered, though not all of them refuse."""
        shut = dict(self.shut)
        mute = [address for proxy, address in enumerate(proxies) if proxy not in shut]
        return "; ".join([f"no answer from {', '.join(mute)}"] * bool(mute) + [shut[proxy] for proxy in sorted(shut)])
