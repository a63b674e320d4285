"""Complete an error as it leaves a client: the reason why no proxy answers, and options that find the same client."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

from pubsub.base.reachability import rejection
from pubsub.client.core.core import ClientCore
from pubsub.config.settings import ClientSettings
from pubsub.errors import PubsubError, Unavailable

LOOK_SECONDS: Final = 0.5
"""Longest extra time of a call, after its time-out, to find the reason for a missing answer."""

DEFAULT_PROXIES: Final = ClientSettings().proxies


class Explained(Protocol):
    """The parts of a session that errors refer to."""

    settings: ClientSettings

    @property
    def silence(self) -> str:
        """Text for an error without any answer."""
        ...

    @property
    def core(self) -> ClientCore:
        """The client's core."""
        ...


def explain(session: Explained, error: BaseException) -> None:
    """Complete an error that ends a call.

    Args:
        session: the client's session; its lock is not held.
        error: changed if it is one of ours.
    """
    name_options(session.settings, error)
    if is_silence(session, error):
        add_obstacles(session, error)


def name_options(settings: ClientSettings, error: BaseException) -> None:
    """Add options to the error, so that the commands in its text find this client."""
    if isinstance(error, PubsubError) and not error.options:
        error.options = options_of(settings)


def is_silence(session: Explained, error: BaseException) -> bool:
    """Return True if an error knows nothing of some proxies except that they do not answer."""
    return isinstance(error, Unavailable) and bool(error.reason) and error.reason == session.silence


def add_obstacles(session: Explained, error: BaseException) -> None:
    """Add the causes that prevent connections with the silent proxies, if any are found within LOOK_SECONDS."""
    assert isinstance(error, Unavailable)
    proxies, refusals = session.settings.proxies, dict(session.core.refusing.refusals)
    mute = [address for index, address in enumerate(proxies) if index not in refusals]
    found = obstacles_within(mute, LOOK_SECONDS)
    if any(found.values()):
        error.reason = "; ".join(
            refusals.get(index) or f"{address}: {found.get(address) or 'no answer'}"
            for index, address in enumerate(proxies)
        )


def obstacles_within(addresses: Sequence[str], seconds: float) -> dict[str, str]:
    """Return the causes that prevent connections with these addresses, if found in time; see `obstacle`."""
    found: dict[str, str] = {}

    def look(address: str) -> None:
        found[address] = rejection(address, 0.8 * seconds)

    # The system's look-up of a host name has no time-out, so the threads may outlive this call.
    threads = [threading.Thread(target=look, args=(one,), daemon=True) for one in addresses]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def options_of(settings: ClientSettings) -> str:
    """Return the options by which `pubsub client` finds a client with these settings, each after a space.

    Proxies with keys are left out, because a proxies file names them. Proxies within this process are left out too,
    because no option can name them.
    """
    words: list[str] = []
    if settings.directory is not None:
        words += ("--dir", str(settings.directory))
    if settings.database is not None:
        words += ("--database", str(settings.database))
    reached = not any(address.startswith("inproc://") for address in settings.proxies)
    if settings.proxies != DEFAULT_PROXIES and not settings.proxy_keys and reached:
        for address in settings.proxies:
            words += ("--proxy", address)
    return "".join(f" {shlex.quote(word)}" for word in words)
