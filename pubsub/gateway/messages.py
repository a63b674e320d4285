"""Keys and headers of messages as HTTP headers and as JSON (docs/http.md, *Keys and headers*).

HTTP header names ignore case and allow few characters, and values are text. Other bytes are written as %XX, in names
and values; the HTTP binding of CloudEvents 1.0 does so for values (section 3.1.3.2). In JSON, bytes that are not text
are base64, under a name of their own.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from pubsub.errors import InvalidName, TooLarge
from pubsub.gateway.json_check import scan
from pubsub.gateway.limits import PARSED_BYTES_MAX, PREVIEW_BODY_BYTES, PREVIEW_KEY_BYTES
from pubsub.gateway.problems import Problem
from pubsub.protocol import decode_headers, encode_headers

RESERVED: Final = "pubsub-"
"""Prefix of all HTTP headers about a message."""

KEY: Final = "pubsub-key"
HEADER: Final = "pubsub-header-"
OMITTED: Final = "pubsub-omitted"
DOUBTFUL: Final = "pubsub-doubtful"

_STEPS_MAX: Final = 32
"""Steps of `scan` for a line that describes a message: such a line has few parts, however long they are."""

_LINE: Final = frozenset({"body", "body_base64", "key", "key_base64", "headers", "headers_base64"})
_NOT_IN_NAMES: Final = re.compile(rb"[^A-Za-z0-9!#$&'*+.^_`|~-]")
_NOT_IN_VALUES: Final = re.compile(rb"[^ -$&-~]|^ | \Z")
_ESCAPE: Final = re.compile(rb"%(..)?", re.DOTALL)
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{2}")


class Wanted(NamedTuple):
    """A message to put; `headers` in the form of a batch."""

    body: bytes
    key: bytes
    headers: bytes


def _escaped(text: bytes, what: re.Pattern[bytes]) -> str:
    return what.sub(lambda found: b"%%%02X" % found[0][0], text).decode("ascii")


def _unescaped(name: str, text: str) -> bytes:
    def byte(found: re.Match[bytes]) -> bytes:
        if found[1] is None or _HEX.fullmatch(found[1]) is None:
            raise Problem("bad-request", f"{name}: write two hexadecimal digits after a %, and a % itself as %25.")
        return bytes.fromhex(found[1].decode())

    return _ESCAPE.sub(byte, text.encode("latin-1"))


def _block(headers: Mapping[str, bytes], where: str = "") -> bytes:
    try:
        return encode_headers(headers)
    except (InvalidName, TooLarge) as error:
        raise Problem("bad-request", f"{where}{error}; nothing was put.") from None


def read_http(fields: Iterable[tuple[str, str]]) -> tuple[bytes, bytes]:
    """Return the key, and the headers in the form of a batch, of a request's HTTP headers.

    Args:
        fields: names in lower case, and values as Latin-1.

    Raises:
        Problem: a header is not allowed, unknown or given twice, or there are too many.
    """
    key: bytes | None = None
    headers: dict[str, bytes] = {}
    for field, value in fields:
        if not field.startswith(RESERVED):
            continue
        if field == KEY and key is None:
            key = _unescaped(field, value)
        elif field.startswith(HEADER):
            name = _unescaped(field, field.removeprefix(HEADER)).decode("latin-1")
            if name in headers:
                raise Problem("bad-request", f"{field} is given twice, so nothing was put; send it once.")
            headers[name] = _unescaped(field, value)
        else:
            twice = "is given twice" if field == KEY else "is unknown; use Pubsub-Key and Pubsub-Header-…"
            raise Problem("bad-request", f"{field} {twice}; nothing was put.")
    return key or b"", _block(headers)


def http_headers(key: bytes, headers: bytes, bytes_max: int) -> dict[str, str]:
    """Return a message's key and headers as HTTP headers.

    Args:
        key: of the message.
        headers: of the message, in the form of a batch.
        bytes_max: of names and values together. Parts that do not fit, headers before the key, are left out and named
            by OMITTED.
    """
    groups = (
        ("key", {KEY: _escaped(key, _NOT_IN_VALUES)} if key and len(key) <= bytes_max else {}),
        ("headers", {
            HEADER + _escaped(name.encode("ascii"), _NOT_IN_NAMES): _escaped(value, _NOT_IN_VALUES)
            for name, value in decode_headers(headers).items()
        }),
    )  # fmt: skip
    found: dict[str, str] = {}
    omitted = ["key"] if key and len(key) > bytes_max else []
    left = bytes_max
    for what, group in groups:
        size = sum(len(name) + len(value) for name, value in group.items())
        if size > left:
            omitted.append(what)
            continue
        found |= group
        left -= size
    return found | ({OMITTED: ", ".join(omitted)} if omitted else {})


def text_or_base64(name: str, value: bytes) -> dict[str, str]:
    """Return a value for JSON: under its name if it is text, otherwise as base64 under `name_base64`."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def json_fields(key: bytes, headers: bytes) -> dict[str, Any]:
    out: dict[str, Any] = dict(text_or_base64("key", key)) if key else {}
    for name, value in decode_headers(headers).items():
        ((kind, text),) = text_or_base64("headers", value).items()
        out.setdefault(kind, {})[name] = text
    return out


def preview(key: bytes, headers: bytes, body: bytes) -> dict[str, Any]:
    """Return the fields of a message that may be large: the beginnings of key and body, and all headers.

    Returns:
        JSON fields, with `bytes`, the length of the body, and `cut`, the names of shortened fields.
    """
    parts = {"key": (key, PREVIEW_KEY_BYTES), "body": (body, PREVIEW_BODY_BYTES)}
    return {
        "bytes": len(body),
        "cut": [name for name, (value, most) in parts.items() if len(value) > most],
        **json_fields(b"", headers),
        **(_beginning("key", *parts["key"]) if key else {}),
        **_beginning("body", *parts["body"]),
    }


def _beginning(name: str, value: bytes, most: int) -> dict[str, str]:
    """Return the first `most` bytes of a value for JSON; a text is not cut inside a character."""
    if len(value) > most:
        try:
            return {name: value[:most].decode()}
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return {name: value[: error.start].decode()}
    return text_or_base64(name, value[:most])


def read_lines(lines: Iterable[bytes]) -> list[Wanted]:
    """Return messages of lines that are JSON objects with the fields `body`, `key` and `headers`.

    Raises:
        Problem: a line is not such a message.
    """
    return [_read_line(line, f"Line {number}: ") for number, line in enumerate(lines, 1)]


def _read_line(line: bytes, where: str) -> Wanted:
    try:
        if len(line) > PARSED_BYTES_MAX and not scan(line.decode("utf-8-sig"), _STEPS_MAX):
            raise ValueError  # It has too many parts, or is not JSON.
        facts = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Problem("bad-request", f"{where}it is not a JSON object with distinct names.") from None
    if not isinstance(facts, dict) or not facts.keys() <= _LINE:
        raise Problem("bad-request", f"{where}a message may have body, key and headers, or the same with _base64.")
    body, key = (_value(facts, name, where) for name in ("body", "key"))
    if body is None:
        raise Problem("bad-request", f"{where}the message has no body; add body or body_base64.")
    headers: dict[str, bytes] = {}
    for kind in ("headers", "headers_base64"):
        given = facts.get(kind, {})
        if not isinstance(given, dict) or not given.keys().isdisjoint(headers):
            raise Problem("bad-request", f"{where}{kind} must be an object, and no name may be given twice.")
        headers |= {name: _bytes(kind, value, where) for name, value in given.items()}
    return Wanted(body, key or b"", _block(headers, where))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _value(facts: Mapping[str, Any], name: str, where: str) -> bytes | None:
    given = [kind for kind in (name, f"{name}_base64") if kind in facts]
    if len(given) > 1:
        raise Problem("bad-request", f"{where}{name} is given twice; write it once.")
    return _bytes(given[0], facts[given[0]], where) if given else None


def _bytes(kind: str, value: object, where: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True) if kind.endswith("_base64") else value.encode()
    except ValueError:
        pass
    raise Problem("bad-request", f"{where}{kind} must be {'base64' if kind.endswith('_base64') else 'text'}.")
