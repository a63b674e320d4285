"""Protection against requests of foreign web pages: the rules for Host, Origin and Sec-Fetch-Site.

A browser sends requests for any page that it shows, also to a service that only this host reaches. Two attacks use
this. A page of another site sends a request that changes state, and does not need the answer. Or the page's name
resolves to this host (DNS rebinding), and the browser gives the page the answers as its own.

The browser reports the origin of a request: `Origin` and `Sec-Fetch-Site` (Fetch Metadata Request Headers, W3C) name
the page, `Host` names the service. Other programs send the Host from their configuration and neither of the others, so
the rules do not affect them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ANY: Final = "*"
"""As an allowed host: any host."""

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(.+)")
_OUR_OWN: Final = frozenset({"same-origin", "none"})
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether a name or an address belongs to this host only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(authority: str) -> tuple[str, str] | None:
    """Return host and port of HOST or HOST:PORT, the host in lower case without brackets; None if it is neither."""
    found = _HOST.fullmatch(authority)
    return None if found is None else (_plain(found[1]), found[2] or "")


def _plain(host: str) -> str:
    host = host.lower().removeprefix("[").removesuffix("]")
    if ":" in host:
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            return host
    return host.removesuffix(".") or host


def parse_host(text: str) -> str:
    """Return a valid name of a service.

    Raises:
        ValueError: it is none; the text describes a valid one.
    """
    if text == ANY:
        return ANY
    if text.count(":") > 1 and not text.startswith("["):
        text = f"[{text}]"
    found = _split(text)
    if found is None or found[1]:
        raise ValueError(f"a host is a name or an address without scheme and port, as pubsub.example.org, not {text!r}")
    return found[0]


def parse_origin(text: str) -> str:
    """Return the origin of a site in the spelling of browsers.

    Raises:
        ValueError: it is none; the text describes a valid one.
    """
    found = _ORIGIN.fullmatch(text.lower().removesuffix("/"))
    authority = None if found is None else _split(found[2])
    if found is None or authority is None:
        raise ValueError(f"an origin is http:// or https:// and a host, with its port if it has one, not {text!r}")
    host, port = authority
    shown = f"[{host}]" if ":" in host else host
    return f"{found[1]}://{shown}{'' if port in {'', _DEFAULT_PORTS[found[1]]} else f':{port}'}"


@dataclass(frozen=True)
class Asked:
    """The headers that tell where a request comes from, with all their values as text.

    Attributes:
        host, origin, site: of Host, Origin and Sec-Fetch-Site.
    """

    host: tuple[str, ...]
    origin: tuple[str, ...]
    site: tuple[str, ...]


def asked(headers: Iterable[tuple[bytes, bytes]]) -> Asked:
    """Read the headers. Their names are in lower case, as in ASGI."""
    found: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
    for name, value in headers:
        if name in found:
            found[name].append(value.decode("latin-1").strip())
    return Asked(*(tuple(values) for values in found.values()))


def opens_document(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a person follows a link of any page to this document; that page cannot read the answer."""
    named = dict(headers)
    return (named.get(b"sec-fetch-mode"), named.get(b"sec-fetch-dest")) == (b"navigate", b"document")


@dataclass(frozen=True)
class Sites:
    """The sites with permission to send requests.

    Attributes:
        hosts: names of the service, in addition to those of the loopback and the address that was connected to.
        origins: other sites with this permission.
        bound: the host that is listened on, which is a name too.
        any_host: accept any Host, for example because requests need a token.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    bound: str = ""
    any_host: bool = False

    @classmethod
    def of(cls, hosts: Iterable[str], origins: Iterable[str], *, bound: str = "", any_host: bool = False) -> Sites:
        """Return the rules for the values of settings.

        Args:
            hosts, origins: each as written in the settings; "*" is any host.
            bound: the host that is listened on.
            any_host: see the attribute.

        Raises:
            ValueError: one of them is invalid.
        """
        named = {parse_host(host) for host in hosts}
        every = any_host or ANY in named
        return cls(frozenset(named - {ANY}), frozenset(map(parse_origin, origins)), _plain(bound), every)

    def refusal(self, request: Asked, reached: str = "") -> str:
        """Return the reason why a request is rejected, "" if it is accepted.

        Args:
            request: its headers.
            reached: the address at which it arrived.
        """
        if not self._knows_host(request.host, reached):
            return f"this service is not known as {_shown(request.host)}"
        if request.origin:
            if not self._knows_origin(request):
                return f"pages of {_shown(request.origin)} may not ask this service"
            if self.configured(request):
                return ""
        if any(site not in _OUR_OWN for site in request.site):
            return "a page of another site may not ask this service"
        return ""

    def configured(self, request: Asked) -> str:
        """Return the origin of a request if it is one of `origins`, "" otherwise."""
        if len(request.origin) != 1:
            return ""
        return request.origin[0] if request.origin[0] in self.origins else ""

    def _knows_host(self, hosts: tuple[str, ...], reached: str) -> bool:
        if self.any_host or not any(hosts):
            return True
        found = _split(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return False
        return is_loopback(found[0]) or found[0] in {*self.hosts, self.bound, _plain(reached)}

    def _knows_origin(self, request: Asked) -> bool:
        """Return whether the origin is configured, or is the service itself under the name in Host."""
        if self.configured(request):
            return True
        found = _ORIGIN.fullmatch(request.origin[0].lower()) if len(request.origin) == 1 else None
        here = _split(request.host[0]) if len(request.host) == 1 else None
        there = None if found is None else _split(found[2])
        if found is None or there is None:
            return False
        usual = _DEFAULT_PORTS[found[1]]
        if here is not None and there == (here[0], "" if here[1] == usual else here[1]):
            return True
        # A reverse proxy may send another Host than browsers do. Its own port is the default one.
        return there[0] in self.hosts and not there[1]


def _shown(values: tuple[str, ...]) -> str:
    text = ", ".join(values)[:100]
    return "".join(character if character.isprintable() else "?" for character in text)
