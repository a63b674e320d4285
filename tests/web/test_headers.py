"""Fields that a request has once; and that every field which is read is known to be one of them, or a list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pubsub
from pubsub.web.headers import SINGLE, check_single, value
from pubsub.web.problems import Refused


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_a_field_that_comes_twice_is_named(name: bytes) -> None:
    with pytest.raises(Refused, match=f"^{name.decode()} is given twice"):
        check_single([(name, b"1"), (b"x", b"2"), (name.title(), b"1")])
    check_single([(name, b"1"), (b"x", b"2"), (b"x", b"2")])


def test_the_value_of_the_first_field_is_found() -> None:
    assert value([(b"A", b"1"), (b"a", b"2")], "a") == "1"
    assert value([], "a") == ""


ASKED = re.compile(r"(?:headers\.get\(|[( ]value\([^,]+, )[\"']([a-z-]+)[\"']")
LISTS = {"upgrade", "transfer-encoding"}
OF_ANSWERS = {"retry-after", "date", "location"}


def test_every_field_of_a_request_that_is_read_is_single_or_a_list() -> None:
    root = Path(pubsub.__file__).parent
    found = {
        name for room in ("gateway", "http", "web") for path in (root / room).rglob("*.py")
        for name in ASKED.findall(path.read_text())
    }  # fmt: skip
    assert {"content-type", "authorization", "last-event-id", "content-length"} <= found
    assert found - LISTS - OF_ANSWERS <= {name.decode() for name in SINGLE}
