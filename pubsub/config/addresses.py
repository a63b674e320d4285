"""ZeroMQ addresses and the proxies file: checked here, before a socket can fail on them with less to say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pubsub.base.limits import PROXIES_MAX
from pubsub.errors import ConfigurationError

IPC_PATH_MAX: Final = 107
"""Bytes of a Unix socket's path, by the kernel."""

ADDRESS_RULE: Final = "tcp://HOST:PORT, ipc://PATH or inproc://NAME"

_TCP: Final = re.compile(r"tcp://(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5}|\*)")
_EVERYWHERE: Final = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104  named to refuse it


def check_address(text: object, *, bind: bool = False) -> str:
    """The address itself, with `tcp://` before a bare HOST:PORT.

    Args:
        text: the address.
        bind: it is to listen on: then the port may be 0 (any free one) and the host `*` (every interface).

    Raises:
        ValueError: it is no address; the text says what is allowed.
    """
    if not isinstance(text, str):
        raise ValueError(ADDRESS_RULE)
    address = text.strip()
    if "://" not in address and ":" in address:
        address = f"tcp://{address}"
    if address.startswith("tcp://"):
        return _check_tcp(address, bind)
    scheme, _, rest = address.partition("://")
    if scheme not in {"ipc", "inproc"} or not rest or not rest.isprintable():
        raise ValueError(ADDRESS_RULE)
    if scheme == "ipc" and len(rest.encode()) > IPC_PATH_MAX:
        raise ValueError(f"an ipc:// path of at most {IPC_PATH_MAX} bytes")
    return address


def listens_everywhere(address: str) -> bool:
    """Whether `address` names no host that others could connect to."""
    match = _TCP.fullmatch(address)
    return match is not None and match[1] in _EVERYWHERE


def _check_tcp(address: str, bind: bool) -> str:
    match = _TCP.fullmatch(address)
    if match is None:
        raise ValueError(ADDRESS_RULE)
    port = 0 if match[2] == "*" else int(match[2])
    if port > 65_535 or (port == 0 and not bind):
        raise ValueError(f"{ADDRESS_RULE}, PORT {0 if bind else 1}-65535")
    if match[1] in _EVERYWHERE and not bind:
        raise ValueError(f"{ADDRESS_RULE} with a HOST that can be connected to")
    return address


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """One line of the proxies file.

    Attributes:
        clients: where clients connect.
        servers: where servers connect; the same unless the line has a second address.
    """

    clients: str
    servers: str


def read_proxies(path: Path) -> tuple[ProxyAddress, ...]:
    """The proxies of a proxies file: one a line, `#` begins a comment.

    A line holds the address of the proxy; one with two addresses names the clients' side and the servers' side.

    Raises:
        ConfigurationError: it cannot be read, names none or too many, or a line is wrong (which, and what is allowed).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"proxies file {path}: {getattr(error, 'strerror', None) or error}") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if len(words) > 2:
                raise ValueError("one address, or two: clients' side, servers' side")
            clients = check_address(words[0])
            found.append(ProxyAddress(clients, check_address(words[-1])))
        except ValueError as error:
            raise ConfigurationError(
                f"proxies file {path}, line {number}: {line.strip()!r} is not allowed; allowed: {error}"
            ) from None
    if not 0 < len(found) <= PROXIES_MAX:
        raise ConfigurationError(f"proxies file {path} names {len(found)} proxies; allowed: 1-{PROXIES_MAX}")
    if len({proxy.clients for proxy in found}) < len(found):
        raise ConfigurationError(f"proxies file {path} names a proxy twice")
    return tuple(found)


def write_proxies(path: Path, proxies: Iterable[ProxyAddress]) -> None:
    """Writes a proxies file that `read_proxies` reads.

    Raises:
        ConfigurationError: it cannot be written.
    """
    lines = ["# one proxy a line; where there are two addresses, the first is for clients and the second for servers"]
    for proxy in proxies:
        lines.append(proxy.clients if proxy.clients == proxy.servers else f"{proxy.clients} {proxy.servers}")
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"proxies file {path}: {error.strerror}") from None
