"""The form of a message on the wire, derived from its dataclass (docs/explanation/protocol.md, V2).

    NAME positional fields name=value … !v=1 CRLF CRLF body

`@message(NAME, positional=N)` stands above the dataclass. Its first N fields are positional. The others follow as
`name=value` in the order of the class. A field with its default value is not sent. A positional field with a default
may be absent. The field with a `Body` travels after the header, wherever it stands in the class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, TypeVar

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.fields import Body, Kind

VERSION: Final = "!v=1"
_Class = TypeVar("_Class", bound=type[Any])


class Field(NamedTuple):
    """A field of the header, as its annotation declares it.

    Attributes:
        attribute: its name in the class.
        prefix: the text in front of the value: `name=`, or "" for a positional field.
        default: MISSING for a required field.
        also: further names that are read; the next release writes the first of them.
    """

    attribute: str
    prefix: str
    kind: Kind
    default: Any
    also: tuple[str, ...] = ()


class Codec:
    """How one message is written and read.

    Args:
        name, also: its name on the wire, and the one that the next release writes instead; "": there is none.
    """

    def __init__(self, name: str, cls: type[Any], positional: int, also: str = "") -> None:
        self.name, self.cls, self.also = name, cls, also
        self.header: list[Field] = []
        self.body: tuple[str, Body] | None = None
        for field in fields(cls):
            kind, *wire = field.type.__metadata__  # type: ignore[union-attr]
            if isinstance(kind, Body):
                self.body = field.name, kind
                continue
            prefix = "" if len(self.header) < positional else f"{wire[0] if wire else field.name}="
            self.header.append(Field(field.name, prefix, kind, field.default, tuple(wire[1:])))
        self._positional = [(one.attribute, one.kind.parse, one.default) for one in self.header[:positional]]
        named = self.header[positional:]
        self._parsers = {
            name: (one.attribute, one.kind.parse) for one in named for name in (one.prefix[:-1], *one.also)
        }
        self._required = frozenset(one.attribute for one in named if one.default is MISSING)
        self._written = [(one.attribute, one.default, one.prefix, one.kind.format) for one in self.header]

    def encode(self, message: Any) -> tuple[bytes, Buffer]:
        """Return the header with its empty line, and the body."""
        words = [self.name]
        for attribute, default, prefix, form in self._written:
            value = getattr(message, attribute)
            if value != default:  # MISSING equals no value.
                words.append(prefix + form(value))
        head = f"{' '.join(words)} {VERSION}\r\n\r\n".encode("ascii")
        if self.body is None:
            return head, b""
        attribute, kind = self.body
        return head, kind.join(getattr(message, attribute))

    def decode(self, words: list[str], body: Buffer) -> Any:
        """Build the message.

        Args:
            words: the words of the header; the first one is the message's name.
            body: the body as received.

        Raises:
            ValueError, DecodeError: words or body are invalid for this message.
        """
        values: dict[str, Any] = {}
        place = 1
        for attribute, parse, default in self._positional:
            if default is MISSING and place == len(words):
                raise DecodeError(f"{self.name} without {attribute}")
            if default is not MISSING and (place == len(words) or "=" in words[place]):
                break
            values[attribute] = parse(words[place])
            place += 1
        versioned = False
        for word in words[place:]:
            wire, equals, text = word.partition("=")
            if not equals:
                raise DecodeError(f"{self.name} with a field that has no value: {word[:60]!r}")
            known = self._parsers.get(wire)
            if known is not None:
                attribute, parse = known
                if attribute in values:
                    raise DecodeError(f"{self.name} with {wire} twice")
                values[attribute] = parse(text)
            elif word == VERSION:
                versioned = True
            elif wire.startswith("!"):
                raise DecodeError(f"{self.name} insists on {word[:60]!r}, which this release does not know")
        if not versioned:
            raise DecodeError(f"{self.name} without {VERSION}")
        if not self._required <= values.keys():
            raise DecodeError(f"{self.name} without {', '.join(sorted(self._required - values.keys()))}")
        if self.body is not None:
            attribute, kind = self.body
            values[attribute] = kind.split(body)
        elif len(body):
            raise DecodeError(f"{self.name} with a body")
        return self.cls(**values)


BY_NAME: Final[dict[str, Codec]] = {}
"""The codec of each message, by its name on the wire."""

BY_CLASS: Final[dict[type[Any], Codec]] = {}
"""The codec of each message, by its class."""


def message(name: str, *, positional: int, also: str = "") -> Callable[[_Class], _Class]:
    """Declare a dataclass as a message.

    Args:
        name: its name on the wire.
        positional: so many of its first fields have no name in the header.
        also: a second name that is read; the next release writes it.
    """

    def declare(cls: _Class) -> _Class:
        BY_NAME[name] = BY_CLASS[cls] = Codec(name, cls, positional, also)
        if also:
            BY_NAME[also] = BY_CLASS[cls]
        return cls

    return declare
