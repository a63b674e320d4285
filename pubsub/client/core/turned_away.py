"""What a client does when a proxy refuses it, or lets it in again (see `doors`)."""

from __future__ import annotations

from pubsub.client.core.core import ClientCore


def refused(core: ClientCore, proxy: int, text: str, now: float) -> None:
    """A proxy refuses; what was to go there goes to another one at once, if there is one.

    Args:
        core: whose proxy it is.
        proxy: its index.
        text: why, and what to do.
        now: the monotonic clock, in seconds.
    """
    core.doors.refused(proxy, text, now)
    if not core.doors.closed:
        _choose_anew(core, proxy)


def let_in(core: ClientCore, proxy: int) -> None:
    """Nothing stands against a proxy any more. Where no other one let us in, what waits goes there at once."""
    if core.doors.opened(proxy):
        _choose_anew(core, None)


def _choose_anew(core: ClientCore, proxy: int | None) -> None:
    """Ask those proxies that do not refuse, in place of one; None: of any."""
    core.proxy = core.doors.open_from(core.proxy)
    for chain in core.outbox.chains.values():
        if proxy in {None, chain.retries.proxy}:
            chain.retries.refused()
            chain.try_now()
    for sub in core.subscriptions.values():
        if proxy in {None, sub.retries.proxy}:
            sub.retries.refused()
            sub.timed_out()
