"""Format messages for the commands of a client as JSON; bytes that are not UTF-8 become base64."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub.client.core.message import Message


def written(message: Message, as_json: bool, *, alone: bool) -> bytes:
    """Format a message for `get`. `alone`: it is the only one, and is written unchanged unless `as_json` is set."""
    if not as_json:
        return message.body if alone or message.body.endswith(b"\n") else message.body + b"\n"
    facts = {"id": message.id, "topic": message.topic, "publisher": message.publisher, "counter": message.counter}
    facts["stamp"] = message.stamp
    if message.doubtful:
        facts["doubtful"] = True
    if message.replay:
        facts["replay"] = message.replay
    return (
        json.dumps(facts | body_fields(message.body) | metadata_fields(message.key, message.headers)).encode() + b"\n"
    )


def body_fields(body: bytes | None) -> dict[str, object]:
    """Return `body` or `body_base64`."""
    return {"body": None} if body is None else _named("body", body)


def metadata_fields(key: bytes, headers: Mapping[str, bytes]) -> dict[str, object]:
    """Return `key` or `key_base64`, and `headers` and `headers_base64` by name, without empty fields."""
    found = _named("key", key) if key else {}
    for name, value in headers.items():
        for kind, text in _named("headers", value).items():
            its = found.setdefault(kind, {})
            assert isinstance(its, dict)
            its[name] = text
    return found


def _named(name: str, value: bytes) -> dict[str, object]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}
