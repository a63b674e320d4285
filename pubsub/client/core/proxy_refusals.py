"""React to a proxy that refuses the client, or accepts it again (see `refusing_proxies`)."""

from __future__ import annotations

from pubsub.client.core.core import ClientCore


def refused(core: ClientCore, proxy: int, text: str, now: float) -> None:
    """Record a refusal, and move requests for that proxy to another one at once, if one accepts.

    Args:
        core: the client's core.
        proxy: index of the refusing proxy.
        text: the cause and the remedy.
        now: the monotonic clock, in seconds.
    """
    core.refusing.refused(proxy, text, now)
    if not core.refusing.closed:
        _choose_anew(core, proxy)


def accepted(core: ClientCore, proxy: int) -> None:
    """Record that a proxy accepts the client; if none did before, pending requests go to it at once."""
    if core.refusing.opened(proxy):
        _choose_anew(core, None)


def _choose_anew(core: ClientCore, proxy: int | None) -> None:
    """Move requests from a proxy, or from all proxies if `proxy` is None, to proxies that accept the client."""
    core.proxy = core.refusing.open_from(core.proxy)
    for chain in core.outbox.chains.values():
        if proxy in {None, chain.retries.proxy}:
            chain.retries.refused()
            chain.try_now()
    for sub in core.subscriptions.values():
        if proxy in {None, sub.retries.proxy}:
            sub.retries.refused()
            sub.timed_out()
