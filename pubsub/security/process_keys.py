"""The keys of a process, loaded before it opens a socket, and the check that its keys are complete.

A process has a key or none. With a key, all its sockets are protected. So it also needs the access list, or the public
keys of the other side. Without a key it must have neither, because its operator would believe in a protection that is
missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pubsub.errors import ConfigurationError
from pubsub.security.audit import Audit
from pubsub.security.authorized import Authorized
from pubsub.security.authorizer import Authorizer, Source
from pubsub.security.files import AuthorizedFile, find_key
from pubsub.security.keys import parse_public
from pubsub.security.pairs import Pair, pair_of


class InMemory:
    """An access list in memory, for a cluster within one process that makes its own key pairs.

    Args:
        authorized: the list at first. Any thread may set another later, and have the processes `hang_up`.
    """

    unread = False

    def __init__(self, authorized: Authorized) -> None:
        self.authorized = authorized
        self._loaded: Authorized | None = None

    def load(self) -> Authorized:
        self._loaded = self.authorized
        return self._loaded

    def changed(self) -> bool:
        return self._loaded is not self.authorized


@dataclass(frozen=True, slots=True)
class ProcessKeys:
    """The keys of a process that listens; None takes its place in a process without keys.

    Attributes:
        pair: its own key pair.
        source: its access list: an `AuthorizedFile`, or `InMemory`. Each process needs its own, because the source
            remembers the last load.
    """

    pair: Pair
    source: Source

    def authorizer(self, audit: Audit, now: float, wall: float) -> Authorizer:
        """Return the access control of this process.

        Args:
            now: the monotonic clock, in seconds.
            wall: seconds since 1970.

        Raises:
            ConfigurationError, AuthorizedRefused: the access list cannot be used.
        """
        return Authorizer(self.source, audit, now, wall)


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The keys of a process that connects; None takes its place in a process without keys.

    Attributes:
        pair: its own key pair.
        expected: for each address that it connects to, in their order, the public keys of 32 bytes that may answer
            there, to be tried in turn.
    """

    pair: Pair
    expected: tuple[tuple[bytes, ...], ...]


def find_client_keys(
    role: str, name: str, named: Path | None, usual: Path, proxies: tuple[str, ...], keys: tuple[str, ...]
) -> ClientKeys | None:
    """Return the keys of a process that connects, by its settings; None if it has none and needs none.

    Args:
        role, name: the process, such as "client", "alice".
        named, usual: see `own_pair`.
        proxies, keys: see `expected_keys`.

    Raises:
        ConfigurationError: see `own_pair` and `expected_keys`.
    """
    pair = own_pair(role, name, named, usual)
    expected = expected_keys(role, name, pair, proxies, keys)
    return None if pair is None or not expected else ClientKeys(pair, expected)


def find_keys(
    role: str, name: str, named: Path | None, usual: Path, authorized: Path | None, outside: str, insecure: bool
) -> ProcessKeys | None:
    """Return the keys of a process that listens, by its settings; None if it has none and needs none.

    Args:
        role, name: the process, such as "proxy", "p1".
        named, usual: see `own_pair`.
        authorized, outside, insecure: see `check_doors`.

    Raises:
        ConfigurationError: see `own_pair` and `check_doors`.
    """
    pair = own_pair(role, name, named, usual)
    check_key_settings(role, name, pair, authorized, outside, insecure)
    return None if pair is None or authorized is None else ProcessKeys(pair, AuthorizedFile(authorized))


def own_pair(role: str, name: str, named: Path | None, usual: Path) -> Pair | None:
    """Return the key pair of a process, None if it has none.

    Args:
        role, name: the process, such as "client", "alice".
        named: the key file in its settings.
        usual: its default key file, which may be missing.

    Raises:
        ConfigurationError: the key file cannot be used.
    """
    try:
        secret = find_key(named, usual)
    except ConfigurationError as error:
        if named is not None and not named.exists():
            raise ConfigurationError(f"{error}; to make one: pubsub keys new {role} {name} --out {named}") from None
        raise
    return None if secret is None else pair_of(secret)


def check_key_settings(
    role: str, name: str, pair: Pair | None, authorized: Path | None, outside: str, insecure: bool
) -> None:
    """Check that a process that listens has both a key and an access list, or neither.

    Args:
        role, name: the process.
        pair: its own key pair.
        authorized: the access list.
        outside: an address of it that other hosts can reach; "" if there is none.
        insecure: it may listen there without keys.

    Raises:
        ConfigurationError: it has one without the other, or would listen to other hosts without keys.
    """
    if pair is not None and authorized is None:
        raise ConfigurationError(
            f"{role} {name} has a key, but no list of authorized keys: name the file by --authorized FILE"
            " or PUBSUB_AUTHORIZED (pubsub keys authorize creates it)"
        )
    if pair is None and authorized is not None:
        raise ConfigurationError(
            f"{role} {name} has no key, but a list of authorized keys, {authorized}: pubsub keys new {role} {name}"
        )
    if pair is None and outside and not insecure:
        raise ConfigurationError(
            f"{role} {name} would listen on {outside} without keys, for anyone who reaches it: "
            f"pubsub keys new {role} {name}, or --insecure"
        )


def expected_keys(
    role: str, name: str, pair: Pair | None, proxies: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[tuple[bytes, ...], ...]:
    """Return the public keys of each proxy, () if the proxies have none.

    Args:
        role, name: the process that connects.
        pair: its own key pair.
        proxies: the addresses of the proxies.
        keys: the text of their keys, in the same order; () if they have none.

    Raises:
        ConfigurationError: only one side has keys.
    """
    if pair is None and keys:
        raise ConfigurationError(f"{proxies[0]} has a key, and {role} {name} has none: pubsub keys new {role} {name}")
    if pair is not None and not keys and not all(proxy.startswith("inproc://") for proxy in proxies):
        raise ConfigurationError(
            f"{role} {name} has a key, but the proxies are named without keys: name them by a proxies file with their"
            f" keys (--proxies-file FILE), or {proxies[0]} by --proxy and its key by --proxy-key pk_…"
        )
    return tuple(tuple(map(parse_public, text.split(","))) for text in keys)
