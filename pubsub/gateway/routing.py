"""Which handler a request is for: a table of methods and paths.

Paths are looked at as they came, before `%2F` is a slash: topics have slashes in their names. One table is what
requests are found by and what the OpenAPI document is held against.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from pubsub.gateway.problems import Problem

ENDLESS: Final = frozenset(
    tuple(path.split("/")[1:])
    for path in ("/live", "/topics/{topic}/stream", "/topics/{topic}/subscribers/{subscriber}/messages")
)
"""Paths whose GET waits for messages: they have no HEAD.

Everywhere else HEAD is GET without its content (RFC 9110, 9.3.2), which health checks ask for.
"""

_NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

Handler = TypeVar("Handler")
Answering = Callable[..., Awaitable[None]]


class Routes(Generic[Handler]):
    """A table of paths like `/topics/{topic}/messages`, each with its methods.

    Attributes:
        paths: path as it is written -> method -> handler.
    """

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Handler]] = {}
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Handler]]]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        """One more row."""
        methods = self.paths.get(path)
        if methods is None:
            methods = self.paths[path] = {}
            parts = tuple(path.split("/")[1:])
            self._by_length.setdefault(len(parts), []).append((parts, methods))
        methods[method] = handler

    def find(self, method: str, raw_path: bytes) -> tuple[Handler, dict[str, str]]:
        """The handler of a request, and what stands for the names in its path.

        Raises:
            Problem: 404, 405, or 400 where a name is no ASCII or has a % that is no escape.
        """
        try:
            parts = raw_path.decode("ascii").split("/")[1:]
        except UnicodeDecodeError:
            raise Problem("bad-request", "A path is written in ASCII, with %-escapes.") from None
        for pattern, methods in self._by_length.get(len(parts), ()):
            names = _match(pattern, parts)
            if names is None:
                continue
            handler = methods.get("GET" if method == "HEAD" and pattern not in ENDLESS else method)
            if handler is None:
                heads = {"HEAD"} if "GET" in methods and pattern not in ENDLESS else set()
                allowed = ", ".join(sorted({*methods, *heads}))
                raise Problem("method-not-allowed", f"This resource takes {allowed}.", {"allow": allowed})
            return handler, names
        raise Problem("not-found", "There is nothing at this path; /openapi.json lists what there is.")


def _match(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    names = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            names[wanted[1:-1]] = _unquoted(part) if "%" in part else part
        elif wanted != part:
            return None
    return names


def _unquoted(part: str) -> str:
    if _NO_ESCAPE.search(part):
        raise Problem("bad-request", "In a path a % is followed by two hexadecimal digits, and itself written %25.")
    try:
        return unquote_to_bytes(part).decode("ascii")
    except UnicodeDecodeError:
        raise Problem("bad-request", "A name in the path is not ASCII.") from None
