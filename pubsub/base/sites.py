"""Which web sites a browser may speak for: the rules for Host, Origin and Sec-Fetch-Site.

A browser sends requests for any page that it shows, also to a service that only this host reaches. Two attacks follow.
A page of another site asks for something that changes state, and does not care about the answer. Or its name is made
to resolve to this host (DNS rebinding), and the browser takes the answers for the page's own. The browser says where a
request comes from: `Origin` and `Sec-Fetch-Site` (Fetch Metadata Request Headers, W3C) tell the page, `Host` the name.
Programs send a Host that they were told and none of the others, and notice nothing of these rules.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ANY: Final = "*"
"""As an allowed host: any."""

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(.+)")
_OUR_OWN: Final = frozenset({"same-origin", "none"})
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a name or an address is this host's own, and no other's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(authority: str) -> tuple[str, str] | None:
    """Host and port of HOST or HOST:PORT, the host in lower case and without brackets; None: it is none."""
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
    """A name that a service may be asked for by.

    Raises:
        ValueError: it is none; the text says what is.
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
    """The origin of a site, as browsers write it.

    Raises:
        ValueError: it is none; the text says what is.
    """
    found = _ORIGIN.fullmatch(text.lower().removesuffix("/"))
    authority = None if found is None else _split(found[2])
    if found is None or authority is None:
        raise ValueError(f"an origin is http:// or https:// and a host, with a port where it has one, not {text!r}")
    host, port = authority
    shown = f"[{host}]" if ":" in host else host
    return f"{found[1]}://{shown}{'' if port in {'', _DEFAULT_PORTS[found[1]]} else f':{port}'}"


@dataclass(frozen=True)
class Asked:
    """What a request says of where it comes from: each header's values, as text.

    Attributes:
        host, origin, site: of Host, Origin and Sec-Fetch-Site.
    """

    host: tuple[str, ...]
    origin: tuple[str, ...]
    site: tuple[str, ...]


def asked(headers: Iterable[tuple[bytes, bytes]]) -> Asked:
    """What headers say, whose names are in lower case as ASGI has them."""
    found: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
    for name, value in headers:
        if name in found:
            found[name].append(value.decode("latin-1").strip())
    return Asked(*(tuple(values) for values in found.values()))


def opens_document(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a person goes to what is asked for, by a link of any page: that page gets nothing of the answer."""
    named = dict(headers)
    return (named.get(b"sec-fetch-mode"), named.get(b"sec-fetch-dest")) == (b"navigate", b"document")


@dataclass(frozen=True)
class Sites:
    """Whose requests are answered.

    Attributes:
        hosts: names that it may be asked for by, besides those of the loopback and the address that was connected to.
        origins: of other sites, whose pages may ask.
        bound: the host that is listened on, which is a name too.
        any_host: no Host is foreign: what asks shows a token, say.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    bound: str = ""
    any_host: bool = False

    @classmethod
    def of(cls, hosts: Iterable[str], origins: Iterable[str], *, bound: str = "", any_host: bool = False) -> Sites:
        """The rules as they are written in settings.

        Args:
            hosts, origins: each as it is written; "*" is any host.
            bound: the host that is listened on.
            any_host: as the attribute.

        Raises:
            ValueError: one of them is none.
        """
        named = {parse_host(host) for host in hosts}
        every = any_host or ANY in named
        return cls(frozenset(named - {ANY}), frozenset(map(parse_origin, origins)), _plain(bound), every)

    def refusal(self, request: Asked, reached: str = "") -> str:
        """Why a request is not answered; "": it is.

        Args:
            request: what it says.
            reached: the address at which it came in.
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
        """The origin of a request where it is another site's whose pages may ask; "": it is not."""
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
        """Whether an origin is a configured one, or that of the service itself: the name that it was asked for by."""
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
        # A proxy in front may ask by another name than browsers do. Its own port is the usual one.
        return there[0] in self.hosts and not there[1]


def _shown(values: tuple[str, ...]) -> str:
    text = ", ".join(values)[:100]
    return "".join(character if character.isprintable() else "?" for character in text)
