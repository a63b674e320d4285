"""Check ZeroMQ addresses and the proxies file, so that errors say more than a failing socket would."""

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
"""Most keys of one proxy in a proxies file: its present key, and earlier or later ones."""

IPC_PATH_MAX: Final = 107
"""Longest path of a Unix socket in bytes, a limit of the kernel."""

ADDRESS_RULE: Final = "tcp://HOST:PORT, ipc://PATH or inproc://NAME"
HTTP_ADDRESS_RULE: Final = "HOST:PORT, such as 127.0.0.1:9400; an IPv6 address in brackets; port 0: any free port"

_EVERYWHERE: Final = frozenset({"*", "0.0.0.0", "::"})  # noqa: S104  named to refuse it


def check_address(text: object, *, bind: bool = False) -> str:
    """Return the address, with `tcp://` before a bare HOST:PORT.

    Args:
        text: the address.
        bind: True for an address to listen on: the port may then be 0 (any free one) and the host `*` (every
            interface).

    Raises:
        ValueError: it is not an address; the text names the allowed forms.
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
    """Return the address for serving HTTP, HOST:PORT, unchanged.

    Raises:
        ValueError: it is not one; the text names the allowed forms.
    """
    try:
        split_place(text.strip() if isinstance(text, str) else "")
    except ValueError:
        raise ValueError(HTTP_ADDRESS_RULE) from None
    assert isinstance(text, str)
    return text.strip()


def listens_everywhere(address: str) -> bool:
    """Return True if the address names no host that others could connect to."""
    try:
        return address.startswith("tcp://") and _split_tcp(address)[0] in _EVERYWHERE
    except ValueError:
        return False


def _split_tcp(address: str) -> tuple[str, int]:
    """Split `tcp://HOST:PORT` into host and port; the port `*` is 0."""
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
        clients: address for clients.
        servers: address for servers; the same unless the line has a second address.
        keys: the proxy's public keys, 32 bytes each, to try in turn; () if the cluster has no keys.
    """

    clients: str
    servers: str
    keys: tuple[bytes, ...] = ()


def read_proxies(path: Path) -> tuple[ProxyAddress, ...]:
    """Read a proxies file: one proxy a line; `#` begins a comment.

    A line has the address of the proxy, or two addresses: for clients and for servers. After them comes the proxy's
    public key, `pk_…`, or several keys separated by commas. In a file with keys, each line must have one. A line
    without a key would make its readers trust any process at that address.

    Raises:
        ConfigurationError: the file cannot be read, names no proxies or too many, or has a wrong line; the text names
            the line and the allowed forms.
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
    """Write a proxies file in one step: a reader sees either the old file or the new one.

    Raises:
        ConfigurationError: it cannot be written, and is unchanged.
    """
    from pubsub.security.files import replace_file  # noqa: PLC0415  not needed to read a proxies file

    lines = ["# one proxy a line; of two addresses, the first is for clients and the second for servers"]
    for proxy in proxies:
        words = [proxy.clients] if proxy.clients == proxy.servers else [proxy.clients, proxy.servers]
        lines.append(" ".join([*words, *([",".join(map(format_public, proxy.keys))] if proxy.keys else [])]))
    replace_file(path, ("\n".join(lines) + "\n").encode(), f"proxies file {path}")


def _parse_proxy(words: list[str]) -> ProxyAddress:
    """Parse the words of a line; raise ValueError with the allowed forms."""
    keys = words[-1].split(",") if words[-1].startswith((PUBLIC, SECRET)) else []
    addresses = words[:-1] if keys else words
    if not 0 < len(addresses) <= 2:
        raise ValueError("one address, or two: clients' side, servers' side; then the proxy's key, pk_…, if it has one")
    proxy = ProxyAddress(check_address(addresses[0]), check_address(addresses[-1]))
    return replace(proxy, keys=parse_keys(words[-1])) if keys else proxy


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Return the public keys of one proxy, 32 bytes each, from a text with commas between them.

    Raises:
        ValueError: a key is not valid, or there are too many; the text names the allowed forms, and never a secret key.
    """
    keys = text.split(",")
    if len(keys) > PROXY_KEYS_MAX or len(set(keys)) < len(keys):
        raise ValueError(f"1-{PROXY_KEYS_MAX} keys of a proxy, each once")
    try:
        return tuple(map(parse_public, keys))
    except InvalidKey as error:
        raise ValueError(f"a public key of the proxy, pk_…; of this one: {error.reason}") from None


def _check_keys(path: Path, found: dict[int, ProxyAddress]) -> None:
    """Check that all lines have keys or none has, and no key is in two lines."""
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
