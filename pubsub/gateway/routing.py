"""Finds the handler of a request in a table of methods and paths.

A path is matched before `%2F` is decoded, because topics have slashes in their names. The same table is compared with
the OpenAPI document.

The rule is docs/explanation/gateway.md, H13.
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
"""Paths without HEAD, because their GET waits for messages.

All other paths answer HEAD as GET without a body (RFC 9110, 9.3.2), which health checks use.
"""

_NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

Handler = TypeVar("Handler")
Answering = Callable[..., Awaitable[None]]


class Routes(Generic[Handler]):
    """A table of paths like `/topics/{topic}/messages`, each with its methods.

    Attributes:
        paths: path pattern -> method -> handler.
    """

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Handler]] = {}
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Handler]]]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        methods = self.paths.get(path)
        if methods is None:
            methods = self.paths[path] = {}
            parts = tuple(path.split("/")[1:])
            self._by_length.setdefault(len(parts), []).append((parts, methods))
        methods[method] = handler

    def find(self, method: str, raw_path: bytes) -> tuple[Handler, dict[str, str]]:
        """Return the handler of a request and its path parameters.

        Raises:
            Problem: 404, 405, or 400 if a name is not ASCII or has a malformed %-escape.
        """
        try:
            parts = raw_path.decode("ascii").split("/")[1:]
        except UnicodeDecodeError:
            raise Problem("bad-request", "The path is not ASCII; write other bytes as %XX.") from None
        for pattern, methods in self._by_length.get(len(parts), ()):
            names = _match(pattern, parts)
            if names is None:
                continue
            handler = methods.get("GET" if method == "HEAD" and pattern not in ENDLESS else method)
            if handler is None:
                heads = {"HEAD"} if "GET" in methods and pattern not in ENDLESS else set()
                allowed = ", ".join(sorted({*methods, *heads}))
                raise Problem("method-not-allowed", f"This resource has only {allowed}.", {"allow": allowed})
            return handler, names
        raise Problem("not-found", "The path does not exist; /openapi.json lists all paths.")


def _match(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    names = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            unquoted = _bytes if wanted == "{key}" else _unquoted
            names[wanted[1:-1]] = unquoted(part) if "%" in part else part
        elif wanted != part:
            return None
    return names


def _bytes(part: str) -> str:
    """Return a key of any bytes, each as the character with its number."""
    if _NO_ESCAPE.search(part):
        raise Problem("bad-request", "In a path write two hexadecimal digits after a %, and a % itself as %25.")
    return unquote_to_bytes(part).decode("latin-1")


def _unquoted(part: str) -> str:
    _bytes(part)
    try:
        return unquote_to_bytes(part).decode("ascii")
    except UnicodeDecodeError:
        raise Problem("bad-request", "A name in the path is not ASCII.") from None
