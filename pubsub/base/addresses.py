"""HOST:PORT in options and files: an IPv6 address is in brackets, as in a URL (RFC 3986, 3.2.2)."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

PORT_MAX: Final = 65_535

_PLACE: Final = re.compile(r"(?:\[([^\[\]\s]*)\]|([^\s:/@\[\]]+)):([0-9]{1,5})")


def split_place(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 address without its brackets.

    Raises:
        ValueError: the text is not HOST:PORT, or the brackets contain no IPv6 address.
    """
    found = _PLACE.fullmatch(text)
    if found is None or (found[1] is not None and not is_ipv6(found[1])) or int(found[3]) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT, with an IPv6 address in brackets")
    return found[1] or found[2], int(found[3])


def join_place(host: str, port: int | str) -> str:
    """Return HOST:PORT for a host name or address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ipv6(host: str) -> bool:
    """Return whether a host is an IPv6 address, with or without a zone (`fe80::1%eth0`)."""
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def is_name(host: str) -> bool:
    """Return whether a host is a name that needs a look-up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
