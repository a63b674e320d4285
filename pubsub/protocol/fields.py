"""Kinds of fields: the annotation of a message's field is its only declaration.

    counter: Number                        counter=7, a number from 0 to 2^63-1
    checksum: Annotated[Number, "crc"]     crc=7, the same under another name

The metadata of an annotation is a `Kind` (or a `Body`), and the name on the wire if it differs from the attribute's.
`protocol.wire` derives the encoder, the decoder and the checks of bounds, `scripts/wire_page.py` the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple

from pubsub.base.limits import TRAIN_ROWS_MAX
from pubsub.protocol.batch import Buffer
from pubsub.protocol.bodies import join_stages, join_topics, split_stages, split_topics
from pubsub.protocol.names import (
    Position,
    format_position,
    format_start,
    is_hex,
    is_id,
    is_topic,
    parse_number,
    parse_position,
    parse_start,
)
from pubsub.protocol.stores import is_store_directory


class Kind(NamedTuple):
    """The text form of a header field's value.

    Attributes:
        title: names a valid value, in error messages and in the reference.
        parse: returns the value of a text, or raises ValueError.
        format: returns the text of a value.
        values: all texts that this release writes, if there are few.
        also: pairs of such a text and the one that the next release writes instead. `parse` reads both.
    """

    title: str
    parse: Callable[[str], Any]
    format: Callable[[Any], str] = str
    values: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()


class Body(NamedTuple):
    """The form of a field that travels as the body; `split` raises DecodeError."""

    title: str
    join: Callable[[Any], Buffer]
    split: Callable[[Buffer], Any]


def matching(title: str, test: Callable[[str], object]) -> Kind:
    """Describe a text that passes a test."""

    def parse(text: str) -> str:
        if not test(text):
            raise ValueError(f"not {title}: {text[:60]!r}")
        return text

    return Kind(title, parse)


def one_of(title: str, values: Iterable[Any], written: Mapping[Any, str] | None = None) -> Kind:
    """Describe one of these values by their texts.

    Args:
        title: names a valid value, in error messages and in the reference.
        values: the valid values.
        written: renamed values, each with its text of the earlier release. For one release that text is written, and
            both are read.
    """
    old = dict(written or {})
    texts = {value: old.get(value, str(value)) for value in values}
    known = {text: value for value, text in texts.items()} | {str(value): value for value in texts}

    def parse(text: str) -> Any:
        if text not in known:
            raise ValueError(f"not {title}: {text[:60]!r}")
        return known[text]

    also = tuple((text, str(value)) for value, text in old.items())
    return Kind(title, parse, texts.__getitem__ if old else str, tuple(texts.values()), also)


def within(least: int, most: int) -> Kind:
    """Describe a number within these bounds."""

    def parse(text: str) -> int:
        number = parse_number(text)
        if not least <= number <= most:
            raise ValueError(f"not a number from {least} to {most}: {text[:40]!r}")
        return number

    return Kind(f"a number from {least} to {most}", parse)


_TEXT: Final = re.compile(r"[!-~]{0,8192}")

Id = Annotated[str, matching("an ID", is_id)]
Target = Annotated[str, matching("an ID or -", lambda text: text == "-" or is_id(text))]
Topic = Annotated[str, matching("a topic", is_topic)]
Hex = Annotated[str, matching("16 hex digits", is_hex)]
Word = Annotated[str, matching("a word of printable ASCII", _TEXT.fullmatch)]
Action = Annotated[str, matching("an action", re.compile("[a-z]{1,20}").fullmatch)]
StoreDirectory = Annotated[str, matching("a store directory", is_store_directory)]
Start = Annotated[str | Position | int, Kind("a start", parse_start, format_start)]
Number = Annotated[int, Kind("a number from 0 to 2^63-1", parse_number)]
Rows = Annotated[int, within(1, TRAIN_ROWS_MAX)]
Flag = Annotated[int, one_of("0 or 1", (0, 1))]
Place = Annotated[Position | None, Kind("a position or -1", parse_position, format_position)]

Contents = Annotated[Buffer, Body("bytes", lambda body: body, lambda body: body)]
Topics = Annotated[dict[str, str] | None, Body("topics", join_topics, split_topics)]
Stages = Annotated[dict[str, int] | None, Body("stages", join_stages, split_stages)]
