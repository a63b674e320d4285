"""Names in messages: IDs, topics, log IDs, positions and addresses, each checked before it is used."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from pubsub.base.limits import NAME_LENGTH_MAX, NUMBER_MAX, START_RECORDS_MAX, TOPIC_LENGTH_MAX
from pubsub.errors import InvalidName

Position = tuple[str, int]
"""A record's place: (log ID, offset). As text, and as a message ID, it is `log.offset`."""

Start = str | Position | int
"""Where a subscription or a range begins: `earliest`, `latest`, `last:N`, a record's position, or a timestamp."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

HEX: Final = "[0-9a-f]{16}"
ID: Final = rf"(?!\.\.?(?![A-Za-z0-9._-]))[A-Za-z0-9._-]{{1,{NAME_LENGTH_MAX}}}"
"""Pattern of the ID of a client, server or proxy; `.` and `..` do not match."""
_ID: Final = re.compile(ID)
DELAY: Final = "%delay"
"""Stands for the client in the publisher of a log's delayed messages. No client has this ID."""
PUBLISHER: Final = rf"(?:{ID}|{DELAY})/{HEX}"
"""Pattern of a publisher."""
_PUBLISHER: Final = re.compile(PUBLISHER)
_TOPIC: Final = re.compile(rf"[!-~]{{1,{TOPIC_LENGTH_MAX}}}")
_RESERVED: Final = re.compile(r"[_$].*|.*[*>#].*")
_SERVICE: Final = "$calls."
_REPLIES: Final = "$replies."
_LAST: Final = re.compile(r"last:([1-9][0-9]{0,5})", re.ASCII)
_LETTERS: Final = "$dead."
_HEX: Final = re.compile(HEX)
_ENDPOINT: Final = re.compile(r"tcp://[A-Za-z0-9._\-\[\]:%]{1,255}:[0-9]{1,5}|ipc://[!-~]{1,107}|inproc://[!-~]{1,100}")
_KEYED: Final = re.compile(rf"(tcp|ipc)://([A-Za-z0-9._-]{{1,{NAME_LENGTH_MAX}}})@(.*)", re.DOTALL)


def is_id(text: str) -> bool:
    """Return whether `text` is a valid ID of a client, server or proxy."""
    return _ID.fullmatch(text) is not None


def is_topic(text: str) -> bool:
    """Return whether `text` is a valid topic."""
    return _TOPIC.fullmatch(text) is not None


def is_publisher(text: str) -> bool:
    """Return whether `text` is a publisher: `client ID/store ID`, or that of a log's delayed messages."""
    return _PUBLISHER.fullmatch(text) is not None


def delay_publisher(log: str) -> str:
    """Return the publisher under which the delayed messages of a log are appended."""
    return f"{DELAY}/{log}"


def is_hex(text: str) -> bool:
    """Return whether `text` is a log ID or a store ID: 64 bits as 16 lower-case hex digits."""
    return _HEX.fullmatch(text) is not None


def is_endpoint(text: str) -> bool:
    """Return whether `text` is a valid address of a server, with or without its ID: tcp with a port, ipc or inproc."""
    return _ENDPOINT.fullmatch(parse_endpoint(text)[1]) is not None


def keyed_endpoint(server: str, endpoint: str) -> str:
    """Return the address that a server with a key announces: `tcp://s2@10.0.0.2:5701`, `ipc://s2@/path`.

    A connecting process learns from it the server, and so the key to expect. An `inproc://` address stays within the
    process and needs no key. The rule is docs/explanation/merge.md, M8.
    """
    scheme, _, place = endpoint.partition("://")
    return endpoint if scheme == "inproc" else f"{scheme}://{server}@{place}"


def keyless_endpoint(endpoint: str) -> str:
    """Return the address that a server without a key announces: `ipc://./s2@x` for the path `s2@x`."""
    return f"ipc://./{endpoint.removeprefix('ipc://')}" if parse_endpoint(endpoint)[0] else endpoint


def parse_endpoint(text: str) -> tuple[str, str]:
    """Return the server's ID, "" if it has no key, and the address for sockets."""
    match = _KEYED.fullmatch(text)
    return (match[2], f"{match[1]}://{match[3]}") if match and is_id(match[2]) else ("", text)


def may_be_one_server(one: str, other: str) -> bool:
    """Return whether two addresses may belong to the same server: they are the same place and do not name two IDs.

    An address names no ID if it was noted before its server had a key, or after the key was removed.
    """
    (server, place), (other_server, other_place) = parse_endpoint(one), parse_endpoint(other)
    return place == other_place and (not server or not other_server or server == other_server)


def check_id(kind: str, text: str) -> str:
    """Return a valid ID.

    Args:
        kind: the kind of name for the error's text, such as "client ID".

    Raises:
        InvalidName: it is not 1-64 of A-Z a-z 0-9 . _ -, or it is . or .. (docs/explanation/protocol.md, V4).
    """
    if not isinstance(text, str):
        raise InvalidName(kind, text, f"it is text, not {type(text).__name__}")
    if not is_id(text):
        raise InvalidName(kind, text, f"1-{NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and not . or ..")
    return text


def check_topic(text: str) -> str:
    """Return a valid topic.

    Raises:
        InvalidName: it is not 1-80 printable ASCII characters without space (docs/explanation/protocol.md, V4).
    """
    if not isinstance(text, str):
        raise InvalidName("topic", text, f"it is text, not {type(text).__name__}")
    if not is_topic(text):
        raise InvalidName("topic", text, f"1-{TOPIC_LENGTH_MAX} printable ASCII characters without space")
    return text


def check_new_topic(text: str) -> str:
    """Return a topic that may be created.

    `*`, `>`, `#` and a leading `_` or `$` are reserved for patterns of topics and for topics of the service itself. An
    old topic with such a name is still served, read, moved and exported. The topic of a client's dead letters is free.

    Raises:
        InvalidName: it is no topic (see `check_topic`), or it is reserved.
    """
    if _RESERVED.fullmatch(check_topic(text)) and not is_letters_topic(text):
        raise InvalidName("topic", text, "* > # and a leading _ or $ are reserved")
    return text


# Topics of calls (docs/clients.md, *Calls that happen once*). Only calls and their workers use them.


def service_topic(service: str, part: int = 0, parts: int = 1) -> str:
    """Return the topic of a service's calls, or of one of its `parts` if its workers share the calls by key."""
    return f"{_SERVICE}{service}" + (f":{part}of{parts}" if parts > 1 else "")


def reply_topic(client: str) -> str:
    """Return the topic of the replies to a client's calls."""
    return f"{_REPLIES}{client}"


def letters_topic(client: str) -> str:
    """Return the topic of a client's dead letters (docs/explanation/retries.md, J10)."""
    return f"{_LETTERS}{client}"


def is_letters_topic(topic: str) -> bool:
    """Return whether the topic is for the dead letters of a client."""
    return topic[0] == "$" and topic.startswith(_LETTERS) and is_id(topic.removeprefix(_LETTERS))


def is_service_topic(topic: str) -> bool:
    """Return whether the topic is for calls.

    It has one subscriber, the worker, and accepts no call before the worker.
    """
    return topic[0] == "$" and topic.startswith(_SERVICE)


def is_reply_topic(topic: str) -> bool:
    """Return whether the topic is for replies."""
    return topic[0] == "$" and topic.startswith(_REPLIES)


def file_name(topic: str) -> str:
    """Return a file name for the topic: percent-encoded, dots too if there is nothing else."""
    encoded = quote(topic, safe="")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def topic_of(name: str) -> str:
    """Return the topic for a `file_name`."""
    return unquote(name)


def parse_number(text: str) -> int:
    """Parse a decimal number of the protocol, 0 to 2^63 - 1, in its only spelling.

    Raises:
        ValueError: it is spelt otherwise or too large.
    """
    # No regular expression, because every message has some numbers, and this code takes a third of the time.
    if (
        not (text.isascii() and text.isdigit())
        or (text[0] == "0" and text != "0")
        or len(text) > 19
        or (number := int(text)) > NUMBER_MAX
    ):
        raise ValueError(f"not a number from 0 to 2^63-1: {text[:40]!r}")
    return number


def format_holder(server: str, log: str) -> str:
    """Return a holder of a topic, its server's ID and its open log, as `server.log`."""
    return f"{server}.{log}"


def parse_holder(text: str) -> tuple[str, str]:
    """Return the server's ID and the log that `format_holder` wrote.

    Raises:
        ValueError: the text is no holder.
    """
    server, dot, log = text.rpartition(".")
    if not dot or not is_id(server) or _HEX.fullmatch(log) is None:
        raise ValueError(f"not a holder: {text[:100]!r}")
    return server, log


def format_position(position: Position | None) -> str:
    """Return `log.offset`, or -1 for none."""
    return "-1" if position is None else f"{position[0]}.{position[1]}"


def parse_position(text: str) -> Position | None:
    """Return the position that `format_position` wrote.

    Raises:
        ValueError: the text is no position.
    """
    if text == "-1":
        return None
    log, dot, offset = text.partition(".")
    if not dot or _HEX.fullmatch(log) is None:
        raise ValueError(f"not a position: {text[:60]!r}")
    return log, parse_number(offset)


FEWER: Final = "fewer_records_than_asked"
"""Reason in the answer to a start `last:N` for which the server could not look at enough rows to find N records."""


def last_records(start: Start) -> int:
    """Return N of a start `last:N`, 1 to 10,000; 0 for another start."""
    match = _LAST.fullmatch(start) if isinstance(start, str) else None
    number = int(match[1]) if match else 0
    return number if number <= START_RECORDS_MAX else 0


def format_start(start: Start) -> str:
    """Return a start as text: `earliest`, `latest`, `last:N`, `log.offset`, or `@` and a timestamp."""
    if isinstance(start, int):
        return f"@{start}"
    return start if isinstance(start, str) else format_position(start)


def parse_start(text: str) -> Start:
    """Return the start that `format_start` wrote.

    Raises:
        ValueError: the text is no start.
    """
    if text in {EARLIEST, LATEST} or last_records(text):
        return text
    if text[:1] == "@":
        return parse_number(text[1:])
    if text.startswith("last:"):
        raise ValueError(f"not last: and a number from 1 to {START_RECORDS_MAX:,}: {text[:60]!r}")
    position = parse_position(text)
    if position is None or not position[1]:
        raise ValueError(f"not a start: {text[:60]!r}")
    return position
