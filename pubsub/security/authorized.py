"""The access list: the grammar of the file `authorized`, and the difference between two versions (docs/security.md).

    # role   id       key      rights (of clients only)
    proxy    p1       pk_…
    server   s1       pk_…
    client   alice    pk_…     put=orders/*,audit  get=orders/*
    client   spark-*  pk_…     put=*  get=*  names=nightly,roll-*
    client   ops      pk_…     status  operate
    client   shop     pk_…     call=billing  serve=stock,orders/*
    client   feed     pk_…     put=news  rate=500/s  bytes=5MiB/s

A line authorizes one key. A line only grants rights and never denies any. So the order of lines has no meaning, and to
remove a line only removes rights. A file is accepted as a whole or not at all. A file without a line feed at its end is
refused. Its last line may be cut short, and then may grant more than the complete line (`put=*` of `put=*-drafts`). No
error repeats a secret key.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from pubsub.base.limits import NAME_LENGTH_MAX, TOPIC_LENGTH_MAX
from pubsub.errors import AuthorizedRefused, InvalidKey
from pubsub.protocol.names import is_id
from pubsub.protocol.topic_settings import EVER, Amount, format_rate, parse_bytes, parse_rate
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import SECRET, format_public, parse_public
from pubsub.security.patterns import Pattern, parse_pattern

AUTHORIZED_LINES_MAX: Final = 10_000
"""Limit of lines in the file, comments included."""

AUTHORIZED_LINE_LENGTH_MAX: Final = 4_096
"""Limit of bytes in a line."""

AUTHORIZED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit of bytes in the file."""

PATTERNS_MAX: Final = 64
"""Limit of patterns of one right in one line."""


class Role(StrEnum):
    """The kind of process that owns a key."""

    PROXY = "proxy"
    SERVER = "server"
    CLIENT = "client"


_TOPIC_CHARACTERS: Final = re.compile(r"[!-~]*")
_ID_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._-]*")
_LISTS: Final[Mapping[str, tuple[re.Pattern[str], int, str]]] = {
    "put": (_TOPIC_CHARACTERS, TOPIC_LENGTH_MAX, "topic"),
    "get": (_TOPIC_CHARACTERS, TOPIC_LENGTH_MAX, "topic"),
    "names": (_ID_CHARACTERS, NAME_LENGTH_MAX, "name"),
    "call": (_TOPIC_CHARACTERS, TOPIC_LENGTH_MAX, "service"),
    "serve": (_TOPIC_CHARACTERS, TOPIC_LENGTH_MAX, "service"),
}
"""Rights with patterns: allowed characters, maximum length, and name of the things that they match."""

_FLAGS: Final = ("status", "operate")
_SECRET: Final = re.compile(rf"{SECRET}[A-Za-z0-9_-]{{16,}}")
"""Text that may be a secret key, or a part of one."""

_QUOTAS: Final[Mapping[str, Callable[[str], Amount]]] = {"rate": parse_rate, "bytes": parse_bytes}
"""Limits on the rights of a client, not rights: messages and bytes that each proxy lets it put in a second."""

LISTS: Final = tuple(_LISTS)

RIGHTS: Final = (*_LISTS, *_FLAGS)

EVERY_RIGHT: Final = (*(f"{name}=*" for name in _LISTS), *_FLAGS)
"""The rights of a client that may do everything, as written in the file."""


@dataclass(frozen=True, slots=True)
class Line:
    """The contents of one line of the file.

    Attributes:
        id: the IDs that the key may use: a pattern for a client, otherwise one name.
        key: the public key, 32 bytes.
        put, get: topics that it may put to, and receive.
        names: named subscriptions that it may use, on topics that it may receive.
        status: it may ask for reports.
        operate: it may operate, and ask for reports.
        call, serve: services that it may call, and serve (docs/services.md, *Keys*).
        rate, throughput: the most messages and bytes that each proxy lets it put in a second (docs/security.md).
        number: the line number, from 1; not a part of the line's meaning.
    """

    role: Role
    id: Pattern
    key: bytes
    put: tuple[Pattern, ...] = ()
    get: tuple[Pattern, ...] = ()
    names: tuple[Pattern, ...] = ()
    status: bool = False
    operate: bool = False
    call: tuple[Pattern, ...] = ()
    serve: tuple[Pattern, ...] = ()
    rate: Amount = EVER
    throughput: Amount = EVER
    number: int = field(default=0, compare=False)

    @property
    def user(self) -> str:
        """The name of this key's user: `client:alice#1a2b3c4d`."""
        return f"{self.role}:{self.id}#{fingerprint(self.key)}"

    @property
    def rights(self) -> tuple[str, ...]:
        """The rights as written in the file, in a fixed order: `put=orders/*,audit`, `status`."""
        lists = ((name, getattr(self, name)) for name in _LISTS)
        words = [f"{name}={','.join(map(str, patterns))}" for name, patterns in lists if patterns]
        quotas = zip(_QUOTAS, (self.rate, self.throughput), strict=True)
        limits = [f"{name}={format_rate(amount)}" for name, amount in quotas if amount != EVER]
        return (*words, *(name for name in _FLAGS if getattr(self, name)), *limits)

    @property
    def quota(self) -> tuple[int | None, int | None] | None:
        """The most messages and bytes a second, each None for no limit; None: it has no quota."""
        return None if self.rate == self.throughput == EVER else (self.rate.records, self.throughput.size)

    def __str__(self) -> str:
        return "  ".join([f"{self.role:<6}", f"{self.id!s:<8}", format_public(self.key), *self.rights])


class Difference(NamedTuple):
    """The difference between two versions of the file. A line with changed rights is in both, in its two forms."""

    came: tuple[Line, ...]
    went: tuple[Line, ...]


class Authorized:
    """One version of the file.

    Args:
        lines: its lines; no key occurs twice.

    Attributes:
        lines: in the file's order.
        by_key: the line of each key.
        by_user: the line of each user (`Line.user`).
        digest: 16 hex digits for the meaning of the file, independent of order, spaces and comments.
    """

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self.lines = lines
        self.by_key = {line.key: line for line in lines}
        self.by_user = {line.user: line for line in lines}
        self.digest = blake2b("\n".join(sorted(map(str, lines))).encode(), digest_size=8).hexdigest()

    def keys_of(self, role: Role, name: str) -> tuple[bytes, ...]:
        """Return the keys that may use an ID in a role; several while one replaces another."""
        return tuple(line.key for line in self.lines if line.role is role and line.id.matches(name))

    def difference(self, before: Authorized) -> Difference:
        """Return the lines that were added and removed since another version."""
        ours, theirs = set(self.lines), set(before.lines)
        came = tuple(line for line in self.lines if line not in theirs)
        return Difference(came, tuple(line for line in before.lines if line not in ours))


def parse(content: bytes, path: str = "") -> Authorized:
    """Parse a file.

    Args:
        content: all of its bytes.
        path: for the error's text.

    Raises:
        AuthorizedRefused: it is invalid or cut short. No other exception is raised.
    """
    try:
        return Authorized(_lines(content))
    except AuthorizedRefused as error:
        raise AuthorizedRefused(error.line, error.reason, path) from None


def parse_line(text: str, number: int = 0) -> Line | None:
    """Parse one line; return None if it is empty or a comment.

    Raises:
        AuthorizedRefused: it is invalid.
    """
    words = [word for word in text.replace("\t", " ").split(" ") if word]
    comment = next((index for index, word in enumerate(words) if word.startswith("#")), len(words))
    if not (words := words[:comment]):
        return None
    try:
        if len(words) < 3:
            raise ValueError("a line is: role, ID, key, and of a client its rights")
        role, name = parse_name(words[0], words[1])
        return make_line(role, name, parse_public(words[2]), words[3:], number)
    except (ValueError, InvalidKey) as error:
        reason = f"the key is not allowed: {error.reason}" if isinstance(error, InvalidKey) else str(error)
        raise AuthorizedRefused(number, reason) from None


def make_line(role: Role, name: Pattern, key: bytes, rights: list[str], number: int = 0) -> Line:
    """Return the line of a key of 32 bytes, with rights as written in the file.

    Raises:
        ValueError: a right is invalid, or the role has no rights.
    """
    if rights and role is not Role.CLIENT:
        raise ValueError(f"a {role} has no rights, only clients have; {shown(rights[0])} follows its key")
    return Line(role, name, key, **_rights(rights), number=number)


def parse_name(role: str, name: str) -> tuple[Role, Pattern]:
    """Return role and ID for these words: the ID of a client is a pattern, any other is one name.

    Raises:
        ValueError: they are invalid; the text has the reason.
    """
    try:
        known = Role(role)
    except ValueError:
        raise ValueError(f"there is no role {shown(role)}; roles: {', '.join(Role)}") from None
    if known is not Role.CLIENT:
        if not is_id(name):
            allowed = f"1-{NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ -"
            raise ValueError(f"a {known}'s ID is one name of {allowed}, not {shown(name)}")
        return known, Pattern((name,))
    if _SECRET.match(name):
        raise ValueError("a secret key (sk_) is in the place of the ID")
    pattern = parse_pattern(name, _ID_CHARACTERS, NAME_LENGTH_MAX, "client ID")
    if len(pattern.parts) == 1 and not is_id(pattern.parts[0]):
        raise ValueError(f"a client's ID is not {shown(pattern.parts[0])}, which would be a folder")
    return known, pattern


def _rights(words: list[str]) -> dict[str, Any]:
    """Return the rights of a client as keyword arguments of `Line`; raises ValueError."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        attribute = "throughput" if name == "bytes" else name
        if name not in RIGHTS and name not in _QUOTAS:
            raise ValueError(f"there is no right {shown(name)}; rights: put= get= names= call= serve= status operate")
        if attribute in found:
            separate = "" if name in _QUOTAS else "; separate its patterns by commas"
            raise ValueError(f"{name} occurs twice{separate}")
        if name in _QUOTAS:
            found[attribute] = _quota(name, text)
            continue
        if name in _FLAGS:
            if equals:
                raise ValueError(f"{name} takes no patterns")
            found[name] = True
        else:
            found[name] = _patterns(name, text)
    return found


def _quota(name: str, text: str) -> Amount:
    try:
        amount = _QUOTAS[name](text or "?")
    except ValueError as error:
        raise ValueError(f"{name} is {error}; not {shown(text)}") from None
    return amount


def shown(text: str) -> str:
    """Return a word for an error's text, shortened, and without a possible secret key."""
    if _SECRET.search(text):
        return "(a secret key)"
    return ascii(text if len(text) <= 40 else text[:39] + "…")


def _lines(content: bytes) -> tuple[Line, ...]:
    if len(content) > AUTHORIZED_BYTES_MAX:
        raise AuthorizedRefused(0, f"{len(content):,} bytes, above AUTHORIZED_BYTES_MAX = {AUTHORIZED_BYTES_MAX:,}")
    if not content:
        raise AuthorizedRefused(0, "the file is empty, as if it was being written; to authorize nobody, put a # in it")
    texts = content.split(b"\n")
    if texts.pop():
        raise AuthorizedRefused(len(texts) + 1, "the last line has no line feed, as if the file was written in part")
    if len(texts) > AUTHORIZED_LINES_MAX:
        raise AuthorizedRefused(0, f"{len(texts):,} lines, above AUTHORIZED_LINES_MAX = {AUTHORIZED_LINES_MAX:,}")
    lines: list[Line] = []
    keys: dict[bytes, int] = {}
    users: dict[str, int] = {}
    texts[0:1] = [text.removeprefix(BOM_UTF8) for text in texts[0:1]]
    for number, raw in enumerate(texts, 1):
        if len(raw) > AUTHORIZED_LINE_LENGTH_MAX:
            raise AuthorizedRefused(
                number, f"{len(raw):,} bytes, above AUTHORIZED_LINE_LENGTH_MAX = {AUTHORIZED_LINE_LENGTH_MAX:,}"
            )
        try:
            line = parse_line(raw.removesuffix(b"\r").decode("utf-8"), number)
        except UnicodeDecodeError:
            raise AuthorizedRefused(number, "it is not UTF-8") from None
        if line is None:
            continue
        if line.key in keys:
            raise AuthorizedRefused(number, f"its key is in line {keys[line.key]} too; a key may occur only once")
        if line.user in users:
            raise AuthorizedRefused(number, f"another key of this ID, in line {users[line.user]}, has its fingerprint")
        keys[line.key] = users[line.user] = number
        lines.append(line)
    return tuple(lines)


def _patterns(name: str, text: str) -> tuple[Pattern, ...]:
    words = text.split(",")
    if len(words) > PATTERNS_MAX:
        raise ValueError(f"{len(words):,} patterns of {name}, above PATTERNS_MAX = {PATTERNS_MAX}")
    literal, length_max, what = _LISTS[name]
    return tuple(sorted({parse_pattern(word, literal, length_max, what) for word in words}))
