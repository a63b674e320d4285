"""What a process needs of keys before it opens a socket: its own pair, and that nothing is half set up.

A process has a key, or it has none. With one, everything that it opens is locked, so it must also be told who may come
in, and what keys the others have; without one, it must not be told any of that, or somebody believes in locks that are
not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pubsub.errors import ConfigurationError
from pubsub.security.audit import Audit
from pubsub.security.authorized import Authorized
from pubsub.security.files import AuthorizedFile, find_key
from pubsub.security.gate import Gate, Source
from pubsub.security.keys import parse_public
from pubsub.security.pairs import Pair, pair_of


class InMemory:
    """Who is authorized, where no file says it: in a cluster within one process, which makes its pairs itself.

    Args:
        authorized: who is, at first; any thread may set another one later, and have the processes `hang_up`.
    """

    unread = False

    def __init__(self, authorized: Authorized) -> None:
        self.authorized = authorized
        self._loaded: Authorized | None = None

    def load(self) -> Authorized:
        """Who is authorized now."""
        self._loaded = self.authorized
        return self._loaded

    def changed(self) -> bool:
        """Whether that is another since the last `load`."""
        return self._loaded is not self.authorized


@dataclass(frozen=True, slots=True)
class ProcessKeys:
    """What a process has that locks its doors; one without keys has None in its place.

    Attributes:
        pair: its own.
        source: where it stands who may come in, and do what: an `AuthorizedFile`, or `InMemory`. Of one process only,
            since it remembers what was loaded last.
    """

    pair: Pair
    source: Source

    def gate(self, audit: Audit, now: float, wall: float) -> Gate:
        """The gate of this process.

        Args:
            audit: where it is noted who comes and what is denied.
            now: the monotonic clock, in seconds.
            wall: seconds since 1970.

        Raises:
            ConfigurationError, AuthorizedRefused: the file of who is authorized cannot be used.
        """
        return Gate(self.source, audit, now, wall)


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What a process has that connects; one without keys has None in its place.

    Attributes:
        pair: its own.
        expected: for each address that it connects to, in their order, the public keys that may answer there, to be
            tried in turn; of 32 bytes each.
    """

    pair: Pair
    expected: tuple[tuple[bytes, ...], ...]


def find_client_keys(
    role: str, name: str, named: Path | None, usual: Path, proxies: tuple[str, ...], keys: tuple[str, ...]
) -> ClientKeys | None:
    """The keys of a process that connects, as its settings name them; None where it has none, and needs none.

    Args:
        role, name: which process: "client", "alice".
        named, usual: as of `own_pair`.
        proxies, keys: as of `expected_keys`.

    Raises:
        ConfigurationError: as `own_pair` and `expected_keys`.
    """
    pair = own_pair(role, name, named, usual)
    expected = expected_keys(role, name, pair, proxies, keys)
    return None if pair is None or not expected else ClientKeys(pair, expected)


def find_keys(
    role: str, name: str, named: Path | None, usual: Path, authorized: Path | None, outside: str, insecure: bool
) -> ProcessKeys | None:
    """The keys of a process that listens, as its settings name them; None where it has none, and needs none.

    Args:
        role, name: which process: "proxy", "p1".
        named, usual: as of `own_pair`.
        authorized, outside, insecure: as of `check_doors`.

    Raises:
        ConfigurationError: as `own_pair` and `check_doors`.
    """
    pair = own_pair(role, name, named, usual)
    check_doors(role, name, pair, authorized, outside, insecure)
    return None if pair is None or authorized is None else ProcessKeys(pair, AuthorizedFile(authorized))


def own_pair(role: str, name: str, named: Path | None, usual: Path) -> Pair | None:
    """The pair of a process, None where it has none.

    Args:
        role, name: whose it is: "client", "alice".
        named: the key file that its settings name.
        usual: where its key file is otherwise, if there is one.

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


def check_doors(role: str, name: str, pair: Pair | None, authorized: Path | None, outside: str, insecure: bool) -> None:
    """See that a process which listens has both a key and the file of who is authorized, or neither.

    Args:
        role, name: which process.
        pair: its own.
        authorized: the file.
        outside: an address on which it listens for others than this host; "": there is none.
        insecure: it may listen there without keys.

    Raises:
        ConfigurationError: it has one without the other, or would listen outside without keys.
    """
    if pair is not None and authorized is None:
        raise ConfigurationError(
            f"{role} {name} has a key, and nothing says whose keys may enter: name the file by --authorized FILE"
            " or PUBSUB_AUTHORIZED (pubsub keys authorize makes it)"
        )
    if pair is None and authorized is not None:
        raise ConfigurationError(
            f"{role} {name} has no key, though {authorized} says whose may enter: pubsub keys new {role} {name}"
        )
    if pair is None and outside and not insecure:
        raise ConfigurationError(
            f"{role} {name} would listen on {outside} without keys, for anyone who reaches it: "
            f"pubsub keys new {role} {name}, or --insecure"
        )


def expected_keys(
    role: str, name: str, pair: Pair | None, proxies: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[tuple[bytes, ...], ...]:
    """For each proxy its public keys, () for all where there are none.

    Args:
        role, name: the process that connects.
        pair: its own.
        proxies: their addresses.
        keys: the text of their keys, in the same order; () where they have none.

    Raises:
        ConfigurationError: one side has keys, and the other has none.
    """
    if pair is None and keys:
        raise ConfigurationError(f"{proxies[0]} has a key, and {role} {name} has none: pubsub keys new {role} {name}")
    if pair is not None and not keys and not all(proxy.startswith("inproc://") for proxy in proxies):
        raise ConfigurationError(
            f"{role} {name} has a key, and the proxies are named without theirs: name them by a proxies file with their"
            f" keys (--proxies-file FILE), or {proxies[0]} by --proxy and its key by --proxy-key pk_…"
        )
    return tuple(tuple(map(parse_public, text.split(","))) for text in keys)
