"""Messages as bytes: one table from name to codec (docs/architecture.md, *The protocol*; Pires et al., section 3.1).

    NAME positional fields name=value … !v=1 CRLF CRLF body

The header is ASCII with single spaces. An unknown `name=value` is ignored, so that a newer peer may say more; an
unknown `!name=value` refuses the message, so that a newer peer can insist. A message is checked in full before
anything is built from it, and `decode` raises nothing but `DecodeError`. `encode` trusts its own side: names are
checked where a user gives them (`names.check_topic`, `names.check_id`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pubsub.base.limits import BODY_BYTES_MAX, HEADER_FIELDS_MAX, HEADER_LENGTH_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import messages as m
from pubsub.protocol import register as r
from pubsub.protocol import standby as s
from pubsub.protocol.batch import Buffer
from pubsub.protocol.bodies import join_stages, join_topics, split_stages, split_topics
from pubsub.protocol.names import format_position, is_hex, is_id, is_topic, parse_number, parse_position, parse_rows
from pubsub.protocol.stores import is_roster

END: Final = b"\r\n\r\n"
VERSION: Final = "!v=1"
_TAIL: Final = f" {VERSION}\r\n\r\n"
_TEXT: Final = re.compile(r"[!-~]{0,8192}")


def _matching(kind: str, test: Callable[[str], bool]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not test(text):
            raise ValueError(f"not {kind}: {text[:60]!r}")
        return text

    return parse


def _one_of(kind: str, outcomes: type[StrEnum]) -> Callable[[str], StrEnum]:
    known = {outcome.value: outcome for outcome in outcomes}

    def parse(text: str) -> StrEnum:
        if text not in known:
            raise ValueError(f"not {kind}: {text[:40]!r}")
        return known[text]

    return parse


def _start(text: str) -> str:
    if text not in {"earliest", "latest"}:
        raise ValueError(f"neither earliest nor latest: {text[:40]!r}")
    return text


def _flag(text: str) -> int:
    if text not in {"0", "1"}:
        raise ValueError(f"not 0 or 1: {text[:40]!r}")
    return int(text)


class _Kind(NamedTuple):
    """How a field's value is written and read."""

    format: Callable[[Any], str]
    parse: Callable[[str], Any]


_ID = _Kind(str, _matching("an ID", is_id))
_TARGET = _Kind(str, _matching("an ID or -", lambda text: text == "-" or is_id(text)))
_TOPIC = _Kind(str, _matching("a topic", is_topic))
_HEX = _Kind(str, _matching("16 hex digits", is_hex))
_WORD = _Kind(str, _matching("a word of printable ASCII", lambda text: _TEXT.fullmatch(text) is not None))
_ADDRESS = ("address", "address", _WORD)
_ACTION = _Kind(str, _matching("an action", lambda text: re.fullmatch("[a-z]{1,20}", text) is not None))
_NUMBER = _Kind(str, parse_number)
_FLAG = _Kind(str, _flag)
_START = _Kind(str, _start)
_POSITION = _Kind(format_position, parse_position)
_OUTCOME = _Kind(str, _one_of("a status", m.Outcome))
_KIND = _Kind(str, _matching("a kind of attempt", r.KINDS.__contains__))
_VOTE = _Kind(str, _one_of("what a proxy says of a ballot", r.VoteOutcome))
_VIEW = _Kind(r.format_view, r.parse_view)
_ENTRY = _Kind(s.format_entry, s.parse_entry)
_STEP = _Kind(str, _matching("a step of a copy", s.STEPS.__contains__))
_REPAIR = _Kind(str, _matching("a step of a repair", s.REPAIR_STEPS.__contains__))
_STORES = _Kind(str, _matching("a roster of stores", is_roster))


class _Codec:
    """Writes and reads one class of message."""

    def __init__(
        self,
        name: str,
        cls: type[Any],
        positional: tuple[tuple[str, _Kind], ...],
        named: tuple[tuple[str, str, _Kind], ...] = (),
        *,
        optional: int = 0,
        body: str = "",
    ) -> None:
        """Args: `optional` positional fields at the end may be absent; `body` is "", "bytes", "topics" or "stages"."""
        self.name, self.cls, self.positional, self.body = name, cls, positional, body
        self.least = len(positional) - optional
        defaults = {f.name: f.default for f in fields(cls)}
        self.named = tuple((wire, attribute, kind, defaults[attribute]) for wire, attribute, kind in named)
        self.parsers = {wire: (attribute, kind.parse) for wire, attribute, kind in named}
        self.required = frozenset(attribute for _, attribute, _ in named if defaults[attribute] is MISSING)

    def encode(self, message: Any) -> tuple[bytes, Buffer]:
        words = [self.name]
        for index, (attribute, kind) in enumerate(self.positional):
            value = getattr(message, attribute)
            if value is None and index >= self.least:
                continue
            words.append(kind.format(value))
        for wire, attribute, kind, default in self.named:
            value = getattr(message, attribute)
            if value != default:
                words.append(f"{wire}={kind.format(value)}")
        if self.body == "topics":
            return (" ".join(words) + _TAIL).encode("ascii"), join_topics(message.topics or {})
        if self.body == "stages":
            return (" ".join(words) + _TAIL).encode("ascii"), join_stages(message.stages or {})
        return (" ".join(words) + _TAIL).encode("ascii"), message.body if self.body else b""

    def decode(self, words: list[str], body: Buffer) -> m.Message:
        values: dict[str, Any] = {}
        place = 1
        for index, (attribute, kind) in enumerate(self.positional):
            if place == len(words) or (index >= self.least and "=" in words[place]):
                if index < self.least:
                    raise DecodeError(f"{self.name} without {attribute}")
                break
            values[attribute] = kind.parse(words[place])
            place += 1
        versioned = False
        for word in words[place:]:
            wire, equals, text = word.partition("=")
            if not equals:
                raise DecodeError(f"{self.name} with a field that has no value: {word[:60]!r}")
            known = self.parsers.get(wire)
            if known is not None:
                attribute, parse = known
                if attribute in values:
                    raise DecodeError(f"{self.name} with {wire} twice")
                values[attribute] = parse(text)
            elif word == VERSION:
                versioned = True
            elif wire.startswith("!"):
                raise DecodeError(f"{self.name} insists on {word[:60]!r}, which is not known here")
        if not versioned:
            raise DecodeError(f"{self.name} without {VERSION}")
        if not self.required <= values.keys():
            raise DecodeError(f"{self.name} without {', '.join(sorted(self.required - values.keys()))}")
        if self.body == "topics":
            values["topics"] = split_topics(body)
        elif self.body == "stages":
            values["stages"] = split_stages(body)
        elif self.body:
            values["body"] = body
        elif len(body):
            raise DecodeError(f"{self.name} with a body")
        message: m.Message = self.cls(**values)
        return message


_SENDER = ("sender", _ID)
_ABOUT = (_SENDER, ("topic", _TOPIC))
_HISTORY = (("log", "log", _HEX), ("avoid", "avoid", _HEX))
_SUBSCRIPTION = (("number", "number", _NUMBER), ("opening", "opening", _NUMBER))
_NAME = ("name", "name", _ID)
_SUBSCRIBING = (*_SUBSCRIPTION, *_HISTORY, _NAME)
_CONTINUES = ("!continue", "continues", _FLAG)  # Insisted on: an earlier release would drop what waits.
_SINK = (("publisher", "publisher", _HEX),)
_ROSTER = (("stores", "stores", _STORES), ("gone", "gone", _STORES))
_REGISTER = (_SENDER, ("store", _HEX))
_TOKEN = ("token", "token", _NUMBER)
_STANDS = (("known", "known", _NUMBER), _TOKEN, ("gap", "gap", _FLAG), ("proxies", "proxies", _HEX), _ADDRESS)
_BALLOT = (("member", "member", _HEX), ("ballot", "ballot", _NUMBER), _TOKEN)
_MEMBER = (*_REGISTER, ("member", _HEX))
_TERM, _LOOP = ("term", "term", _NUMBER), ("loop", "loop", _NUMBER)
_ENDS = (("end", "end", _ENTRY), ("committed", "committed", _ENTRY), ("hand", "hand", _FLAG))
_PAGES = tuple((name, name, _NUMBER) for name in ("first", "pages", "page_bytes"))
_ROW_NUMBERS = ("log", "offset", "count", "publisher", "counter", "stamp", "checksum", "total")
_ROW = tuple((name, name, _NUMBER) for name in _ROW_NUMBERS)
_CODECS: Final = (
    _Codec("SUBSCRIBE", m.Subscribe, _ABOUT, (*_SUBSCRIBING, ("from", "start", _START), _CONTINUES)),
    _Codec("UNSUBSCRIBE", m.Unsubscribe, _ABOUT, _SUBSCRIBING),
    _Codec(
        "GET",
        m.Get,
        (*_ABOUT, ("last", _POSITION)),
        (
            *_SUBSCRIPTION,
            ("after", "after", _POSITION),
            ("max", "records_max", _NUMBER),
            ("bytes", "bytes_max", _NUMBER),
            ("wait", "wait_ms", _NUMBER),
            *_HISTORY,
            _NAME,
        ),
    ),
    _Codec(
        "READ",
        m.Read,
        (*_ABOUT, ("after", _POSITION)),
        (
            ("until", "until", _POSITION),
            _NAME,
            ("max", "records_max", _NUMBER),
            ("bytes", "bytes_max", _NUMBER),
            *_HISTORY,
        ),
    ),
    _Codec(
        "PUT",
        m.Put,
        (*_ABOUT, ("counter", _NUMBER)),
        (
            ("publisher", "publisher", _HEX),
            ("count", "count", _NUMBER),
            ("previous", "previous", _NUMBER),
            ("crc", "checksum", _NUMBER),
            *((flag, flag, _FLAG) for flag in ("whole", "cumulative")),
            ("!rows", "rows", _Kind(str, parse_rows)),
            *_HISTORY,
        ),
        body="bytes",
    ),
    _Codec(
        "STAGE",
        m.Stage,
        (*_ABOUT, ("batch", _NUMBER)),
        (
            *_SINK,
            ("attempt", "attempt", _ID),
            ("first", "first", _NUMBER),
            ("count", "count", _NUMBER),
            ("crc", "checksum", _NUMBER),
            *_HISTORY,
        ),
        body="bytes",
    ),
    _Codec("PUBLISH", m.Publish, (*_ABOUT, ("batch", _NUMBER)), (*_SINK, *_HISTORY), body="stages"),
    _Codec(
        "PERIODIC",
        m.Periodic,
        (_SENDER,),
        (
            ("store", "store", _HEX),
            ("incarnation", "incarnation", _NUMBER),
            ("change", "change", _NUMBER),
            _ADDRESS,
            ("proxies", "proxies", _WORD),
            ("stamp", "stamp", _NUMBER),
            ("partial", "partial", _FLAG),
            ("previous", "previous", _NUMBER),
            ("draining", "draining", _FLAG),
            *_ROSTER,
            ("made", "made", _NUMBER),
            ("member", "member", _HEX),
        ),
        body="topics",
    ),
    _Codec(
        "HEARTBEAT",
        m.Heartbeat,
        (_SENDER,),
        (("stamp", "stamp", _NUMBER), ("leaving", "leaving", _FLAG), ("empty", "empty", _FLAG)),
    ),
    _Codec("WHOLE", m.Whole, (_SENDER,), body="topics"),
    _Codec("MERGE", m.Merge, (*_ABOUT, ("address", _WORD)), (("log", "log", _HEX),)),
    _Codec(
        "TRANSFER",
        m.Transfer,
        _ABOUT,
        (
            ("step", "step", _WORD),
            ("transfer", "transfer", _HEX),
            ("chunk", "chunk", _NUMBER),
            ("log", "log", _HEX),
            ("store", "store", _HEX),
            ("change", "change", _NUMBER),
        ),
        body="bytes",
    ),
    _Codec("PREPARE", r.Prepare, _REGISTER, (*_BALLOT, ("kind", "kind", _KIND), ("sticky", "sticky_ms", _NUMBER))),
    _Codec("ACCEPT", r.Accept, _REGISTER, (*_BALLOT, ("view", "view", _VIEW))),
    _Codec("LOOK", r.Look, _REGISTER, (_TOKEN,)),
    _Codec(
        "ADMIT",
        r.Admit,
        _REGISTER,
        (
            _TOKEN,
            ("identity", "identity", _HEX),
            ("promised", "promised", _NUMBER),
            ("ballot", "ballot", _NUMBER),
            ("view", "view", _VIEW),
        ),
    ),
    _Codec(
        "VOTE",
        r.Vote,
        (*_REGISTER, ("outcome", _VOTE)),
        (
            _TOKEN,
            ("identity", "identity", _HEX),
            ("promised", "promised", _NUMBER),
            ("ballot", "ballot", _NUMBER),
            ("view", "view", _VIEW),
            ("silence", "silence_ms", _NUMBER),
        ),
    ),
    _Codec(
        "FORGET",
        r.Forget,
        _REGISTER,
        (("member", "member", _HEX), ("identity", "identity", _HEX), ("done", "done", _FLAG)),
    ),
    _Codec("ENTRY", s.Entries, _MEMBER, (_TERM, _LOOP, *_ENDS), body="bytes"),
    _Codec("FOLLOW", s.Follow, _MEMBER, _STANDS, body="bytes"),
    _Codec("ACK", s.Ack, _MEMBER, (_TERM, _LOOP, ("durable", "durable", _ENTRY), ("full", "full", _FLAG))),
    _Codec(
        "COPY",
        s.Copy,
        (*_MEMBER, ("step", _STEP)),
        (_TOKEN, _TERM, ("snapshot", "snapshot", _ENTRY), *_PAGES),
        body="bytes",
    ),
    _Codec("REPAIR", s.Repair, (*_MEMBER, ("step", _REPAIR)), (_TERM, ("end", "end", _ENTRY), *_ROW), body="bytes"),
    _Codec("REPORT", m.Report, (_SENDER, ("target", _TARGET)), (("topic", "topic", _TOPIC),)),
    _Codec(
        "OPERATE",
        m.Operate,
        (_SENDER, ("target", _TARGET), ("action", _ACTION)),
        (
            ("topic", "topic", _TOPIC),
            ("server", "server", _ID),
            _ADDRESS,
            ("subscriber", "subscriber", _WORD),
            ("log", "log", _HEX),
            ("store", "store", _HEX),
            ("stop", "stop", _FLAG),
            ("member", "member", _HEX),
        ),
    ),
    _Codec(
        "STATUS",
        m.Status,
        (_SENDER, ("outcome", _OUTCOME), ("message", _POSITION)),
        (
            ("reason", "reason", _WORD),
            ("last", "last", _NUMBER),
            ("position", "position", _POSITION),
            ("first", "first", _POSITION),
            *_SUBSCRIPTION,
            ("log", "log", _HEX),
            ("records", "records", _NUMBER),
            ("crc", "checksum", _NUMBER),
            ("change", "change", _NUMBER),
            ("stamp", "stamp", _NUMBER),
            ("server", "server", _ID),
            ("rows", "rows", _NUMBER),
            *_ROSTER,
            ("since", "since", _NUMBER),
            _TERM,
            ("doubtful", "doubtful", _FLAG),
        ),
        optional=1,
        body="bytes",
    ),
)
_BY_NAME: Final = {codec.name: codec for codec in _CODECS}
_BY_CLASS: Final = {codec.cls: codec for codec in _CODECS}


def encode(message: m.Message) -> tuple[bytes, Buffer]:
    """A message as its header and its body.

    Returns:
        The header with its empty line, and the body, not copied; b"" for none.
    """
    return _BY_CLASS[type(message)].encode(message)


def decode(contents: Buffer, body: Buffer | None = None) -> m.Message:
    """The message that these bytes are.

    Args:
        contents: the header with its empty line, and after it the body where `body` is None.
        body: the body where it came in a frame of its own.

    Raises:
        DecodeError: they are not a message; nothing else is ever raised.
    """
    raw = bytes(contents[: HEADER_LENGTH_MAX + 1])
    end = raw.find(END)
    if end < 0:
        raise DecodeError(f"no end of the header within {HEADER_LENGTH_MAX} bytes")
    rest = contents[end + len(END) :]
    if body is None:
        body = rest
    elif len(rest):
        raise DecodeError("bytes between the header and the body")
    if len(body) > BODY_BYTES_MAX:
        raise DecodeError(f"body of {len(body)} bytes, above {BODY_BYTES_MAX}")
    try:
        words = raw[:end].decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise DecodeError("header is not ASCII") from None
    if len(words) > HEADER_FIELDS_MAX:
        raise DecodeError(f"header of {len(words)} fields, above {HEADER_FIELDS_MAX}")
    codec = _BY_NAME.get(words[0])
    if codec is None:
        raise DecodeError(f"no message is named {words[0][:40]!r}")
    try:
        return codec.decode(words, body)
    except ValueError as error:
        raise DecodeError(f"{codec.name}: {error}") from None


def request_route(head: Buffer) -> tuple[str, str, str] | None:
    """Name, sender and topic (or target) of a message, read without decoding the rest; None where there are not three.

    What a proxy needs of nearly every message: its cost per message is this.
    """
    words = bytes(head[: 16 + 64 + 80 + 4]).split(b" ", 3)
    if len(words) < 4:
        return None
    try:
        return words[0].decode("ascii"), words[1].decode("ascii"), words[2].decode("ascii")
    except UnicodeDecodeError:
        return None
