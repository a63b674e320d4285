"""Which pages a browser may ask the gateway for, and what it is told of that (CORS, as the Fetch standard has it).

Every request is looked at here before its path is. A page of a site that is configured gets what a program gets, but
for credentials: a bearer token goes with a request only where the page's script puts it there.
"""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Scope, Send

from pubsub.base.sites import Asked, Sites, asked, opens_document
from pubsub.gateway.problems import Problem

METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
EXPOSED: Final = "allow, idempotency-replayed, link, retry-after, www-authenticate"
"""Headers of answers that a page's script may read."""

PREFLIGHT_SECONDS: Final = 600
"""A browser need not ask anew for so long whether it may."""

HEADERS_LENGTH_MAX: Final = 4_096
"""Characters of the names of headers that a page asks to send."""

_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]*")


def check(sites: Sites, scope: Scope) -> Asked:
    """See that a request may be answered; what it says of where it comes from.

    Raises:
        Problem: a page of a foreign site asks, or it is asked by a foreign name.
    """
    request = asked(scope["headers"])
    server = scope.get("server")
    reached = str(server[0]) if server else ""
    reason = sites.refusal(request, reached)
    if reason and _opens_the_page(scope):  # A link from elsewhere: the page's own requests are its own.
        reason = sites.refusal(Asked(request.host, request.origin, ()), reached)
    if reason:
        hint = "--allow-host allows further names, and --allow-origin pages of other sites"
        raise Problem("foreign-site", f"{reason[0].upper()}{reason[1:]}; {hint}.")
    return request


def _opens_the_page(scope: Scope) -> bool:
    return scope["method"] == "GET" and scope["path"] == "/" and opens_document(scope["headers"])


def preflight(scope: Scope) -> Response | None:
    """The answer to a browser that asks whether it may send what a page of a configured site wants to."""
    named = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if scope["method"] != "OPTIONS" or b"access-control-request-method" not in named:
        return None
    wanted = named.get(b"access-control-request-headers", "")
    if len(wanted) > HEADERS_LENGTH_MAX or _NAMES.fullmatch(wanted) is None:
        raise Problem("bad-request", "Access-Control-Request-Headers is no list of names of headers.")
    headers = {"access-control-allow-methods": METHODS, "access-control-max-age": str(PREFLIGHT_SECONDS)}
    if wanted:
        headers["access-control-allow-headers"] = wanted
    if named.get(b"access-control-request-private-network") == "true":
        headers["access-control-allow-private-network"] = "true"
    return Response(None, 204, headers)


def telling(sites: Sites, request: Asked, send: Send) -> Send:
    """Sends what `send` does, and tells a browser whether the page that asked may read it."""
    if not sites.origins:
        return send
    more = [(b"vary", b"origin")]
    origin = sites.configured(request)
    if origin:
        more += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED.encode()),
        ]

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending
