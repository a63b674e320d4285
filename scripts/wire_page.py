"""Write docs/reference/wire.md: every message and field, from the annotations and docstrings of the dataclasses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from pubsub.base.limits import BODY_BYTES_MAX, HEADER_FIELDS_MAX, HEADER_LENGTH_MAX, NAME_LENGTH_MAX, TOPIC_LENGTH_MAX
from pubsub.protocol.fields import Kind
from pubsub.protocol.messages import Message
from pubsub.protocol.wire import BY_CLASS, VERSION, Codec, Field

PAGE = Path(__file__).parents[1] / "docs/reference/wire.md"
HEAD = f"""\
# The wire

<!-- Made by `python scripts/wire_page.py` from pubsub/protocol. Change it there. -->

The [glossary](../glossary.md) defines the terms of this page. [The protocol](../explanation/protocol.md)
explains the purpose of the messages, and their answers.

A message is a header, `CRLF CRLF`, and a body. The header is ASCII text. It has the name of the message, the positional
fields in the order of the table, and then fields as `name=value`, separated by single spaces. A header has at most
{HEADER_LENGTH_MAX:,} bytes and {HEADER_FIELDS_MAX} words, a body at most {BODY_BYTES_MAX:,} bytes. Every header has
`{VERSION}`. A field with its default value is not sent. A receiver ignores an unknown `name=value`, and refuses a
message with an unknown `!name=value`.

*X or Y* is a renamed message, field or value: this release sends X and reads both, and the next release sends Y.

| value | form |
|---|---|
"""
FORMS = {
    "an ID": f"1-{NAME_LENGTH_MAX} of `A-Z a-z 0-9 . _ -`, and not `.` or `..`",
    "an ID or -": "an ID, or `-`",
    "a topic": f"1-{TOPIC_LENGTH_MAX} printable ASCII characters without space",
    "16 hex digits": "of `0-9 a-f`",
    "a word of printable ASCII": "0-8,192 characters without space",
    "an action": "1-20 of `a-z`",
    "a store directory": "`store.incarnation.server`, separated by commas, the incarnation in hex; 0-8,192 characters",
    "a start": "`earliest`, `latest`, `last:N` (N is 1 to 10,000), `log.offset` (the record there is the first one), "
    "or `@` and a timestamp",
    "a position or -1": "`log.offset`, 16 hex digits and a number; `-1` for none",
    "a view": "`term/primary/members/in sync/address`, members separated by commas",
    "an entry": "`term.number`",
    "bytes": "as they are",
    "topics": "`topic=value`, separated by single spaces",
    "stages": "`attempt=rows`, separated by single spaces",
    "lines of work": "lines: done, keep, offered, claim, tried (with the handler's error), later and dead"
    " ([groups](../explanation/groups.md))",
    "deletions": "lines of `topic number`",
    "patterns": "lines of `subscriber pattern number on stamp`",
}
"""The form of each kind of value that is neither a number nor one of a few texts."""


def meanings(cls: type[Any]) -> dict[str, str]:
    """Return the docstring after each field of a class."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return found


def names(*texts: str) -> str:
    """Return the name that this release sends, and those that it reads as well, as the page shows them."""
    return " or ".join(f"`{text}`" for text in texts)


def value(kind: Kind) -> str:
    """Return the valid values of a field, as the table shows them."""
    if kind.values:
        return ", ".join(names(text, *(new for old, new in kind.also if old == text)) for text in kind.values)
    return kind.title if kind.title in FORMS else kind.title.removeprefix("a number from ")


def default(field: Field) -> str:
    """Return the default of a field, as the table shows it."""
    if field.default is MISSING:
        return "required"
    return f"`{field.kind.format(field.default)}`" if field.default not in {"", None} else "none"


def section(codec: Codec) -> Iterator[str]:
    """Yield the lines of one message."""
    said = meanings(codec.cls)
    yield f"\n## {codec.name}\n"
    yield f"{inspect.getdoc(codec.cls)}\n"
    if codec.also:
        yield f"Its name: {names(codec.name, codec.also)}.\n"
    yield "| field | value | default | meaning |\n|---|---|---|---|"
    for field in codec.header:
        name = names(field.prefix or field.attribute, *(f"{name}=" for name in field.also))
        yield f"| {name} | {value(field.kind)} | {default(field)} | {said.get(field.attribute, '')} |"
    if codec.body is not None:
        attribute, body = codec.body
        yield f"| body | {body.title} | | {said.get(attribute, '')} |"


def page() -> str:
    """Return the text of the page."""
    forms = "\n".join(f"| {title} | {form} |" for title, form in FORMS.items())
    sections = [line for cls in get_args(Message) for line in section(BY_CLASS[cls])]
    return HEAD + forms + "\n" + "\n".join(sections) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
