"""Read the URL of a database, and keep its password out of everything that shows a setting."""

from __future__ import annotations

import re
from typing import Final, Self
from urllib.parse import parse_qsl, quote, urlsplit

SCHEMES: Final = ("postgresql://", "postgres://")
FORM: Final = "postgresql://USER@HOST:PORT/DATABASE, as libpq reads it"


_PASSWORDS: Final = (
    (re.compile(r"(://[^/:@\s]*):.*@"), r"\1@"),
    (re.compile(r"\b(password|passfile)\s*=\s*('[^']*'|[^&\s'\"]*)", re.IGNORECASE), r"\1=…"),
)


def without_password(text: str) -> str:
    """Return the text without the passwords of URLs and of connection strings in it."""
    for pattern, replacement in _PASSWORDS:
        text = pattern.sub(replacement, text)
    return text


class DatabaseUrl(str):
    """The URL of a PostgreSQL database. As text it has no password.

    Args:
        given: the URL, perhaps with a password.

    Attributes:
        full: the URL as it was given.

    Raises:
        ValueError: it is no such URL; the text names the allowed form, and nothing that was given.
    """

    __slots__ = ("full",)
    full: str

    def __new__(cls, given: str) -> Self:
        if isinstance(given, cls):
            return given
        if not isinstance(given, str) or not given.startswith(SCHEMES) or any(c in given for c in "\0\n\r\t "):
            raise ValueError(FORM)
        try:
            parts = urlsplit(given)
        except ValueError:
            raise ValueError(FORM) from None
        user, at, hosts = parts.netloc.rpartition("@")
        shown = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("password", "sslpassword")]
        query = "&".join(f"{quote(name)}={quote(value, safe='/,:')}" for name, value in shown)
        text = f"postgresql://{user.partition(':')[0]}{at}{hosts}{parts.path}{'?' if query else ''}{query}"
        made = super().__new__(cls, text)
        made.full = given
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.full,)
