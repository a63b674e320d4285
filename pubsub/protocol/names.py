"""Names that may travel: IDs, topics, log IDs and positions, each checked before anything is built from it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from pubsub.base.limits import NAME_LENGTH_MAX, NUMBER_MAX, TOPIC_LENGTH_MAX
from pubsub.errors import InvalidName

Position = tuple[str, int]
"""A record's place: (log ID, offset). As text, and as a message ID, it is `log.offset`."""

Start = str | Position | int
"""Where a subscription begins: `earliest`, `latest`, at a record by its position, or at a stamp."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

HEX: Final = "[0-9a-f]{16}"
ID: Final = rf"(?!\.\.?(?![A-Za-z0-9._-]))[A-Za-z0-9._-]{{1,{NAME_LENGTH_MAX}}}"
"""Patterns of a log ID or store ID, and of the ID of a client, a server or a proxy: `.` and `..` are none."""
_ID: Final = re.compile(ID)
_TOPIC: Final = re.compile(rf"[!-~]{{1,{TOPIC_LENGTH_MAX}}}")
_RESERVED: Final = re.compile(r"[_$].*|.*[*>#].*")
_SERVICE: Final = "$calls."
_REPLIES: Final = "$replies."
_HEX: Final = re.compile(HEX)
_ENDPOINT: Final = re.compile(r"tcp://[A-Za-z0-9._\-\[\]:%]{1,255}:[0-9]{1,5}|ipc://[!-~]{1,107}|inproc://[!-~]{1,100}")
_KEYED: Final = re.compile(rf"(tcp|ipc)://([A-Za-z0-9._-]{{1,{NAME_LENGTH_MAX}}})@(.*)", re.DOTALL)


def is_id(text: str) -> bool:
    """Whether `text` may name a client, a server or a proxy."""
    return _ID.fullmatch(text) is not None


def is_topic(text: str) -> bool:
    """Whether `text` may name a topic."""
    return _TOPIC.fullmatch(text) is not None


def is_hex(text: str) -> bool:
    """Whether `text` is a log ID or a store ID: 64 bits as 16 lower-case hex digits."""
    return _HEX.fullmatch(text) is not None


def is_endpoint(text: str) -> bool:
    """Whether `text` may be an address of a server, with its ID or without: tcp with a port, ipc or inproc."""
    return _ENDPOINT.fullmatch(parse_endpoint(text)[1]) is not None


def keyed_endpoint(server: str, endpoint: str) -> str:
    """Where a server that has a key is reached, as it tells others: `tcp://s2@10.0.0.2:5701`, `ipc://s2@/path`.

    So whoever is to connect knows whose key to expect. `inproc://` is within a process, and nobody's key is asked for.
    """
    scheme, _, place = endpoint.partition("://")
    return endpoint if scheme == "inproc" else f"{scheme}://{server}@{place}"


def keyless_endpoint(endpoint: str) -> str:
    """Where a server without a key is reached, as it tells others: `ipc://./s2@x` where the path is `s2@x`."""
    return f"ipc://./{endpoint.removeprefix('ipc://')}" if parse_endpoint(endpoint)[0] else endpoint


def parse_endpoint(text: str) -> tuple[str, str]:
    """The ID of the server, "" where it has no key, and the address that sockets connect to."""
    match = _KEYED.fullmatch(text)
    return (match[2], f"{match[1]}://{match[3]}") if match and is_id(match[2]) else ("", text)


def may_be_one_server(one: str, other: str) -> bool:
    """Whether two addresses may be the same server's: they are one place, and do not name two IDs.

    An address that was noted before its server had a key names none, nor does one from after it had.
    """
    (server, place), (other_server, other_place) = parse_endpoint(one), parse_endpoint(other)
    return place == other_place and (not server or not other_server or server == other_server)


def check_id(kind: str, text: str) -> str:
    """The ID itself.

    Args:
        kind: what it names, for the error's text: "client ID", "server ID" …
        text: the ID.

    Raises:
        InvalidName: it is not 1-64 of A-Z a-z 0-9 . _ -, or it is . or .. (docs/architecture.md, *The protocol*).
    """
    if not isinstance(text, str):
        raise InvalidName(kind, text, f"it is text, not {type(text).__name__}")
    if not is_id(text):
        raise InvalidName(kind, text, f"1-{NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and not . or ..")
    return text


def check_topic(text: str) -> str:
    """The topic itself.

    Raises:
        InvalidName: it is not 1-80 printable ASCII characters without space (docs/architecture.md, *The protocol*).
    """
    if not isinstance(text, str):
        raise InvalidName("topic", text, f"it is text, not {type(text).__name__}")
    if not is_topic(text):
        raise InvalidName("topic", text, f"1-{TOPIC_LENGTH_MAX} printable ASCII characters without space")
    return text


def check_new_topic(text: str) -> str:
    """The topic itself, where it may be made.

    `*`, `>`, `#` and a leading `_` or `$` are reserved: so a pattern of topics, and topics of the service's own, can
    be told from others one day. A topic that was made under such a name before is served, read, moved and exported.

    Raises:
        InvalidName: it is no topic (see `check_topic`), or one that is reserved.
    """
    if _RESERVED.fullmatch(check_topic(text)):
        raise InvalidName("topic", text, "* > # and a leading _ or $ are reserved; there are no patterns")
    return text


# Topics of calls (docs/clients.md, *Calls that happen once*): nobody else can put there or take.


def service_topic(service: str, part: int = 0, parts: int = 1) -> str:
    """Where calls of a service are put; of one of its `parts`, where its workers share them by keys."""
    return f"{_SERVICE}{service}" + (f":{part}of{parts}" if parts > 1 else "")


def reply_topic(client: str) -> str:
    """Where replies to a client's calls are put."""
    return f"{_REPLIES}{client}"


def is_service_topic(topic: str) -> bool:
    """Whether calls are put there: it has one subscriber, the worker, and takes nothing before there is one."""
    return topic[0] == "$" and topic.startswith(_SERVICE)


def is_reply_topic(topic: str) -> bool:
    """Whether replies are put there."""
    return topic[0] == "$" and topic.startswith(_REPLIES)


def file_name(topic: str) -> str:
    """The topic as the name of a file or folder: percent-encoded, dots too where there is nothing else."""
    encoded = quote(topic, safe="")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def topic_of(name: str) -> str:
    """The topic whose `file_name` this is."""
    return unquote(name)


def parse_number(text: str) -> int:
    """A decimal number of the protocol, 0 to 2^63 - 1, in its one spelling.

    Raises:
        ValueError: it is spelt otherwise or too large.
    """
    # Not a regular expression: every message has some numbers, and this takes a third of the time.
    if (
        not (text.isascii() and text.isdigit())
        or (text[0] == "0" and text != "0")
        or len(text) > 19
        or (number := int(text)) > NUMBER_MAX
    ):
        raise ValueError(f"not a number from 0 to 2^63-1: {text[:40]!r}")
    return number


def format_holder(server: str, log: str) -> str:
    """A holder of a topic, `server.log`: its server's ID and its open log."""
    return f"{server}.{log}"


def parse_holder(text: str) -> tuple[str, str]:
    """The server's ID and the log that `format_holder` wrote.

    Raises:
        ValueError: it is not one.
    """
    server, dot, log = text.rpartition(".")
    if not dot or not is_id(server) or _HEX.fullmatch(log) is None:
        raise ValueError(f"not a holder: {text[:100]!r}")
    return server, log


def format_position(position: Position | None) -> str:
    """`log.offset`, or -1 for none."""
    return "-1" if position is None else f"{position[0]}.{position[1]}"


def parse_position(text: str) -> Position | None:
    """The position that `format_position` wrote.

    Raises:
        ValueError: it is not one.
    """
    if text == "-1":
        return None
    log, dot, offset = text.partition(".")
    if not dot or _HEX.fullmatch(log) is None:
        raise ValueError(f"not a position: {text[:60]!r}")
    return log, parse_number(offset)


def format_start(start: Start) -> str:
    """A start as text: `earliest`, `latest`, `log.offset`, or `@` and a stamp."""
    if isinstance(start, int):
        return f"@{start}"
    return start if isinstance(start, str) else format_position(start)


def parse_start(text: str) -> Start:
    """The start that `format_start` wrote.

    Raises:
        ValueError: it is not one.
    """
    if text in {EARLIEST, LATEST}:
        return text
    if text[:1] == "@":
        return parse_number(text[1:])
    position = parse_position(text)
    if position is None or not position[1]:
        raise ValueError(f"not a start: {text[:60]!r}")
    return position
