"""Bodies that are lists: topics with a value each, and stages with their rows."""

from __future__ import annotations

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import is_hex, is_id, is_topic, parse_number


def split_topics(body: Buffer) -> dict[str, str]:
    """Return topics with a value each from a body `topic=value topic=value …`; the value follows the last `=`.

    Raises:
        DecodeError: the body is no such list.
    """
    try:
        words = bytes(body).decode("ascii").split(" ") if len(body) else []
    except UnicodeDecodeError:
        raise DecodeError("topics are not ASCII") from None
    out = {}
    for word in words:
        topic, equals, value = word.rpartition("=")
        if not equals or not is_topic(topic) or not _value(value):
            raise DecodeError(f"not a topic and its value: {word[:100]!r}")
        out[topic] = value
    return out


def _value(text: str) -> bool:
    return text == "" or all(is_id(part) or _is_holder(part) for part in text.split(","))


def _is_holder(text: str) -> bool:
    server, dot, log = text.rpartition(".")
    return bool(dot) and is_id(server) and is_hex(log)


def join_topics(topics: dict[str, str] | None) -> bytes:
    """Return the body that `split_topics` reads."""
    return " ".join([f"{topic}={value}" for topic, value in (topics or {}).items()]).encode("ascii")


def split_stages(body: Buffer) -> dict[str, int]:
    """Return attempts with their rows from a body `attempt=rows attempt=rows …`.

    Raises:
        DecodeError: the body is no such list.
    """
    try:
        words = bytes(body).decode("ascii").split(" ") if len(body) else []
    except UnicodeDecodeError:
        raise DecodeError("stages are not ASCII") from None
    out: dict[str, int] = {}
    for word in words:
        attempt, _, rows = word.partition("=")
        if not is_id(attempt) or attempt in out:
            raise DecodeError(f"not an attempt, or a repeated one: {word[:100]!r}")
        try:
            out[attempt] = parse_number(rows)
        except ValueError as error:
            raise DecodeError(str(error)) from None
    return out


def join_stages(stages: dict[str, int] | None) -> bytes:
    """Return the body that `split_stages` reads."""
    return " ".join([f"{attempt}={rows}" for attempt, rows in (stages or {}).items()]).encode("ascii")
