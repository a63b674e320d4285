"""The reference of the wire is the one that the messages' declarations make."""

from __future__ import annotations

from typing import get_args

from wire_page import FORMS, PAGE, meanings, page

from pubsub.protocol.messages import Message, Put
from pubsub.protocol.wire import BY_CLASS


def test_the_page_is_made_from_the_present_messages() -> None:
    assert PAGE.read_text() == page(), "run `python scripts/wire_page.py`"


def test_the_page_has_each_message_and_field_with_its_name_on_the_wire() -> None:
    said = page()
    for cls in get_args(Message):
        section = said.partition(f"## {BY_CLASS[cls].name}\n")[2].partition("\n## ")[0]
        for field in BY_CLASS[cls].header:
            assert f"\n| `{field.prefix or field.attribute}` " in section


def test_the_page_has_the_name_that_the_next_release_sends() -> None:
    said = page()
    assert "| `opening=` or `epoch=` | 0 to 2^63-1 |" in said
    assert "\nIts name: `WHOLE` or `OWNERS`.\n" in said
    assert "| `kind=` | `take` or `takeover`, `resume`, `hand` or `handover`, " in said


def test_a_meaning_is_the_docstring_behind_the_field() -> None:
    assert meanings(Put)["checksum"] == "CRC-32 of the body."
    assert "body" not in meanings(Put)
    assert f"| `crc=` | 0 to 2^63-1 | required | {meanings(Put)['checksum']} |" in page()


def test_each_kind_of_value_has_its_form() -> None:
    kinds = {field.kind for cls in get_args(Message) for field in BY_CLASS[cls].header}
    titles = {kind.title for kind in kinds if not kind.values and "number from" not in kind.title}
    bodies = {codec.body[1].title for cls in get_args(Message) if (codec := BY_CLASS[cls]).body}
    assert titles | bodies == FORMS.keys()
