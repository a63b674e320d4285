"""The check for JSON: it agrees with `json.loads`, at any depth, and delays no other thread.

The rule is docs/explanation/gateway.md, H15.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubsub.gateway import json_check
from pubsub.gateway.json_check import PARTS_AT_ONCE, is_json, scan

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=30,
)


def taken(text: str) -> bool:
    """What Python's module says."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_json_written_by_python_is_accepted(value: object, indent: int | None, ascii_: bool) -> None:
    assert scan(json.dumps(value, indent=indent, ensure_ascii=ascii_))


@settings(max_examples=3 * settings().max_examples)
@given(VALUES, st.data())
def test_changed_json_is_judged_as_by_pythons_module(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    put = data.draw(st.text(alphabet='[]{},:"\\ \n0123.eE+-tfnuNIa\x00', max_size=2))
    changed = text[:place] + put + text[place + data.draw(st.integers(0, 2)) :]
    assert scan(changed) == taken(changed)


@settings(max_examples=3 * settings().max_examples)
@given(st.text(alphabet='[]{},:"\\ 01.e-tnul', max_size=12))
@example("")
@example(" ")
@example("[1,]")
@example('{"a":1,}')
@example("01")
@example("1.")
@example("[]]")
@example('"\\u12g4"')
@example("-Infinity")
@example('{"a" 1}')
def test_any_text_is_judged_as_by_pythons_module(text: str) -> None:
    assert scan(text) == taken(text)


@pytest.mark.parametrize("count", [PARTS_AT_ONCE - 1, PARTS_AT_ONCE, PARTS_AT_ONCE + 1, 3 * PARTS_AT_ONCE + 1])
def test_more_parts_than_are_taken_at_once_are_read_too(count: int) -> None:
    row = [{str(number): [number] * count for number in range(3)}] * count
    assert scan(json.dumps(row))
    assert not scan(json.dumps(row).replace("]}]", "],}]"))


@pytest.mark.parametrize("depth", [10, 2_000, 60_000])
@pytest.mark.parametrize(("epoch", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_the_depth_of_json_is_unlimited(depth: int, epoch: bytes, closing: bytes) -> None:
    assert is_json(epoch * depth + b"1" + closing * depth)
    assert not is_json(epoch * depth + b"1" + closing * (depth - 1))
    assert not is_json(epoch * depth)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-be"])
@pytest.mark.parametrize("size", [1, json_check.PARSED_BYTES_MAX])
def test_json_is_recognized_in_every_allowed_encoding(encoding: str, size: int) -> None:
    assert is_json(json.dumps("ö" * size, ensure_ascii=False).encode(encoding))
    assert not is_json(b'"' + b"\xff" * size + b'"')


def test_a_number_may_have_more_digits_than_python_reads() -> None:
    digits = sys.get_int_max_str_digits() + 1
    assert is_json(b"9" * digits)
    assert is_json(b"9" * json_check.PARSED_BYTES_MAX + b"9")


def test_a_text_beyond_the_limit_of_steps_is_no_json() -> None:
    assert scan("[[[[]]]]", 4)
    assert not scan("[[[[]]]]", 3)


def test_other_threads_go_on_while_a_large_document_is_looked_at() -> None:
    body, longest, over = b"[" + b"[[[]]]," * 100_000 + b"[]]", 0.0, threading.Event()
    looking = threading.Thread(target=lambda: (is_json(body), over.set()))
    looking.start()
    turns, before = 0, time.monotonic()
    while not over.is_set():
        turns, longest, before = turns + 1, max(longest, time.monotonic() - before), time.monotonic()
    looking.join()
    assert turns > 10, f"{turns} turns, {longest} s without one"
