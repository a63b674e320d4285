"""What is added to an error as it leaves a client: why no proxy answers, and how a command finds the same client."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

from pubsub.base.reachability import obstacle
from pubsub.client.core.core import ClientCore
from pubsub.config.settings import ClientSettings
from pubsub.errors import PubsubError, Unavailable

LOOK_SECONDS: Final = 0.5
"""So much longer than its time-out a call takes at most, for why nobody answered."""

DEFAULT_PROXIES: Final = ClientSettings().proxies


class Explained(Protocol):
    """A session, as far as errors are about it."""

    settings: ClientSettings

    @property
    def silence(self) -> str:
        """What to say where nobody answered at all."""
        ...

    @property
    def core(self) -> ClientCore:
        """What decides."""
        ...


def explain(session: Explained, error: BaseException) -> None:
    """Add what a person needs to an error that a call ends with.

    Args:
        session: of the client; its lock is not held.
        error: changed, where it is one of ours.
    """
    name_options(session.settings, error)
    if is_silence(session, error):
        add_obstacles(session, error)


def name_options(settings: ClientSettings, error: BaseException) -> None:
    """Have the commands that an error names find this client, which is none of those at the usual place."""
    if isinstance(error, PubsubError) and not error.options:
        error.options = options_of(settings)


def is_silence(session: Explained, error: BaseException) -> bool:
    """Whether an error says of some proxies no more than that they do not answer."""
    return isinstance(error, Unavailable) and bool(error.reason) and error.reason == session.silence


def add_obstacles(session: Explained, error: BaseException) -> None:
    """Say what keeps connections from being made, where something does; it takes LOOK_SECONDS at most."""
    assert isinstance(error, Unavailable)
    proxies, shut = session.settings.proxies, dict(session.core.doors.shut)
    mute = [address for index, address in enumerate(proxies) if index not in shut]
    found = obstacles_within(mute, LOOK_SECONDS)
    if any(found.values()):
        error.reason = "; ".join(
            shut.get(index) or f"{address}: {found.get(address) or 'no answer'}"
            for index, address in enumerate(proxies)
        )


def obstacles_within(addresses: Sequence[str], seconds: float) -> dict[str, str]:
    """What keeps connections to these addresses from being made, as far as that is known soon; see `obstacle`."""
    found: dict[str, str] = {}

    def look(address: str) -> None:
        found[address] = obstacle(address, 0.8 * seconds)

    # The system's look-up of a host name has no time-out, so its end is not waited for.
    threads = [threading.Thread(target=look, args=(one,), daemon=True) for one in addresses]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def options_of(settings: ClientSettings) -> str:
    """The options by which `pubsub client` finds a client with these settings, each with a space in front.

    Proxies with keys, and those within this process, are left out: a proxies file names the ones, nothing the others.
    """
    words: list[str] = []
    if settings.directory is not None:
        words += ("--dir", str(settings.directory))
    reached = not any(address.startswith("inproc://") for address in settings.proxies)
    if settings.proxies != DEFAULT_PROXIES and not settings.proxy_keys and reached:
        for address in settings.proxies:
            words += ("--proxy", address)
    return "".join(f" {shlex.quote(word)}" for word in words)
