"""Rejects requests from pages of foreign sites, and answers browsers about allowed ones (CORS, the Fetch standard).

Every request is checked here before its path. A page of a configured site gets the same as a program, except
credentials: a bearer token is sent only if the page's script adds it.

The rule is docs/explanation/gateway.md, H14.
"""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Scope, Send

from pubsub.base.sites import Asked, Sites, asked, opens_document
from pubsub.gateway.problems import Problem

METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
EXPOSED: Final = "allow, etag, idempotency-replayed, link, retry-after, www-authenticate"
"""Response headers that a page's script may read."""

PREFLIGHT_SECONDS: Final = 600
"""Time for which a browser may reuse the answer to a preflight."""

HEADERS_LENGTH_MAX: Final = 4_096
"""Characters of the header names that a page asks to send."""

_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]*")


def check(sites: Sites, scope: Scope) -> Asked:
    """Check the origin and the host of a request, and return them.

    Raises:
        Problem: a foreign site sends it, or it is for a foreign host name.
    """
    request = asked(scope["headers"])
    server = scope.get("server")
    reached = str(server[0]) if server else ""
    reason = sites.refusal(request, reached)
    if reason and _opens_the_page(scope):  # A link may open the page; its requests then have this origin.
        reason = sites.refusal(Asked(request.host, request.origin, ()), reached)
    if reason:
        hint = "--allow-host allows further names, and --allow-origin pages of other sites"
        raise Problem("foreign-site", f"{reason[0].upper()}{reason[1:]}; {hint}.")
    return request


def _opens_the_page(scope: Scope) -> bool:
    return scope["method"] == "GET" and scope["path"] == "/" and opens_document(scope["headers"])


def preflight(scope: Scope) -> Response | None:
    """Return the answer to a browser's preflight, None if the request is not one."""
    named = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if scope["method"] != "OPTIONS" or b"access-control-request-method" not in named:
        return None
    wanted = named.get(b"access-control-request-headers", "")
    if len(wanted) > HEADERS_LENGTH_MAX or _NAMES.fullmatch(wanted) is None:
        raise Problem("bad-request", "Access-Control-Request-Headers is not a list of header names.")
    headers = {"access-control-allow-methods": METHODS, "access-control-max-age": str(PREFLIGHT_SECONDS)}
    if wanted:
        headers["access-control-allow-headers"] = wanted
    if named.get(b"access-control-request-private-network") == "true":
        headers["access-control-allow-private-network"] = "true"
    return Response(None, 204, headers)


def telling(sites: Sites, request: Asked, send: Send) -> Send:
    """Return a `send` that also tells the browser whether the requesting page may read the response."""
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
