"""ZeroMQ addresses and the proxies file: checked here, before a socket can fail on them with less to say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pubsub.base.addresses import split_place
from pubsub.base.limits import PROXIES_MAX
from pubsub.base.loopback import reaches_out as reaches_out  # noqa: PLC0414  one of the rules of addresses
from pubsub.base.text import without_mark
from pubsub.errors import ConfigurationError, InvalidKey
from pubsub.security.keys import PUBLIC, SECRET, format_public, parse_public

PROXY_KEYS_MAX: Final = 4
"""Keys of one proxy in a proxies file: the one that it has, and those it had or will have."""

IPC_PATH_MAX: Final = 107
"""Bytes of a Unix socket's path, by the kernel."""

ADDRESS_RULE: Final = "tcp://HOST:PORT, ipc://PATH or inproc://NAME"
HTTP_ADDRESS_RULE: Final = "HOST:PORT, as 127.0.0.1:9400; an IPv6 address in brackets; port 0: one that is free"

_EVERYWHERE: Final = frozenset({"*", "0.0.0.0", "::"})  # noqa: S104  named to refuse it


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


def check_http_address(text: object) -> str:
    """The address to serve HTTP at: HOST:PORT, as it is.

    Raises:
        ValueError: it is none; the text says what is allowed.
    """
    try:
        split_place(text.strip() if isinstance(text, str) else "")
    except ValueError:
        raise ValueError(HTTP_ADDRESS_RULE) from None
    assert isinstance(text, str)
    return text.strip()


def listens_everywhere(address: str) -> bool:
    """Whether `address` names no host that others could connect to."""
    try:
        return address.startswith("tcp://") and _split_tcp(address)[0] in _EVERYWHERE
    except ValueError:
        return False


def _split_tcp(address: str) -> tuple[str, int]:
    """Host and port of `tcp://HOST:PORT`, the port `*` being 0."""
    place = address.removeprefix("tcp://")
    return split_place(f"{place.removesuffix('*')}0" if place.endswith(":*") else place)


def _check_tcp(address: str, bind: bool) -> str:
    try:
        host, port = _split_tcp(address)
    except ValueError:
        raise ValueError(f"{ADDRESS_RULE}, PORT {0 if bind else 1}-65535, an IPv6 address in brackets") from None
    if port == 0 and not bind:
        raise ValueError(f"{ADDRESS_RULE}, PORT 1-65535")
    if host in _EVERYWHERE and not bind:
        raise ValueError(f"{ADDRESS_RULE} with a HOST that can be connected to")
    return address


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """One line of the proxies file.

    Attributes:
        clients: where clients connect.
        servers: where servers connect; the same unless the line has a second address.
        keys: the proxy's public keys, 32 bytes each, to be tried in turn; none where the cluster has no keys.
    """

    clients: str
    servers: str
    keys: tuple[bytes, ...] = ()


def read_proxies(path: Path) -> tuple[ProxyAddress, ...]:
    """The proxies of a proxies file: one a line, `#` begins a comment.

    A line holds the address of the proxy; one with two addresses names the clients' side and the servers' side. Behind
    them stands the proxy's public key, `pk_…`, or several with commas between. In a file with keys each line has one:
    whoever connects trusts no other, and a line without a key would have it speak to anybody at that address.

    Raises:
        ConfigurationError: it cannot be read, names none or too many, or a line is wrong (which, and what is allowed).
    """
    try:
        text = without_mark(path.read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"proxies file {path}: {getattr(error, 'strerror', None) or error}") from None
    found: dict[int, ProxyAddress] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            found[number] = _parse_proxy(words)
        except ValueError as error:
            shown = "a line with a secret key" if SECRET in line else repr(line.strip())
            raise ConfigurationError(
                f"proxies file {path}, line {number}: {shown} is not allowed; allowed: {error}"
            ) from None
    _check_keys(path, found)
    proxies = tuple(found.values())
    if not 0 < len(proxies) <= PROXIES_MAX:
        raise ConfigurationError(f"proxies file {path} names {len(proxies)} proxies; allowed: 1-{PROXIES_MAX}")
    if len({proxy.clients for proxy in proxies}) < len(proxies):
        raise ConfigurationError(f"proxies file {path} names a proxy twice")
    return proxies


def write_proxies(path: Path, proxies: Iterable[ProxyAddress]) -> None:
    """Writes a proxies file that `read_proxies` reads, at once: who reads it meanwhile sees the old one or the new one.

    Raises:
        ConfigurationError: it cannot be written; then it is as it was.
    """
    from pubsub.security.files import replace_file  # noqa: PLC0415  what only reads a proxies file needs none of it

    lines = ["# one proxy a line; where there are two addresses, the first is for clients and the second for servers"]
    for proxy in proxies:
        words = [proxy.clients] if proxy.clients == proxy.servers else [proxy.clients, proxy.servers]
        lines.append(" ".join([*words, *([",".join(map(format_public, proxy.keys))] if proxy.keys else [])]))
    replace_file(path, ("\n".join(lines) + "\n").encode(), f"proxies file {path}")


def _parse_proxy(words: list[str]) -> ProxyAddress:
    """The proxy of a line's words; raises ValueError with what is allowed."""
    keys = words[-1].split(",") if words[-1].startswith((PUBLIC, SECRET)) else []
    addresses = words[:-1] if keys else words
    if not 0 < len(addresses) <= 2:
        raise ValueError("one address, or two: clients' side, servers' side; then the proxy's key, pk_…, if it has one")
    proxy = ProxyAddress(check_address(addresses[0]), check_address(addresses[-1]))
    return replace(proxy, keys=parse_keys(words[-1])) if keys else proxy


def parse_keys(text: str) -> tuple[bytes, ...]:
    """The public keys of one proxy, 32 bytes each; the text has commas between them.

    Raises:
        ValueError: they are none, or too many; the text says what is allowed, and repeats no secret key.
    """
    keys = text.split(",")
    if len(keys) > PROXY_KEYS_MAX or len(set(keys)) < len(keys):
        raise ValueError(f"1-{PROXY_KEYS_MAX} keys of a proxy, each once")
    try:
        return tuple(map(parse_public, keys))
    except InvalidKey as error:
        raise ValueError(f"a public key of the proxy, pk_…; of this one: {error.reason}") from None


def _check_keys(path: Path, found: dict[int, ProxyAddress]) -> None:
    """See that all lines have keys or none has, and no two the same."""
    if not any(proxy.keys for proxy in found.values()):
        return
    owners: dict[bytes, int] = {}
    for number, proxy in found.items():
        if not proxy.keys:
            raise ConfigurationError(
                f"proxies file {path}, line {number}: {proxy.clients} has no key, and other lines have one; "
                "put its key, pk_…, at the end of the line"
            )
        for key in proxy.keys:
            if key in owners:
                raise ConfigurationError(
                    f"proxies file {path}, line {number}: its key stands in line {owners[key]} too"
                )
            owners[key] = number
