"""Keys and headers in HTTP and JSON: they are unchanged on the way, and invalid ones are refused."""

from __future__ import annotations

import base64
import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import MESSAGE_HEADERS_BYTES_MAX, MESSAGE_HEADERS_MAX
from pubsub.gateway.limits import PARSED_BYTES_MAX, PREVIEW_BODY_BYTES, PREVIEW_KEY_BYTES
from pubsub.gateway.messages import Wanted, http_headers, json_fields, preview, read_http, read_lines, text_or_base64
from pubsub.gateway.problems import Problem
from pubsub.protocol import encode_headers

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="="), min_size=1, max_size=20)
LOWER = NAMES.map(str.lower)
HEADERS = st.dictionaries(NAMES, st.binary(max_size=50), max_size=8)
FIELD = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, section 5.1
VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")  # The same, section 5.5, of ASCII.


@given(st.binary(max_size=50), st.dictionaries(LOWER, st.binary(max_size=50), max_size=8))
def test_http_headers_carry_the_key_and_headers_of_a_put(key: bytes, headers: dict[str, bytes]) -> None:
    block = encode_headers(headers)
    fields = http_headers(key, block, 1 << 20)
    assert all(FIELD.fullmatch(name) and VALUE.fullmatch(value) for name, value in fields.items())
    assert read_http([(name.lower(), value) for name, value in fields.items()]) == (key, block)


@given(st.binary(max_size=50), st.binary(max_size=50), HEADERS)
def test_json_carries_the_message_of_a_put(body: bytes, key: bytes, headers: dict[str, bytes]) -> None:
    facts = json_fields(key, encode_headers(headers)) | text_or_base64("body", body)
    (found,) = read_lines([json.dumps(facts).encode()])
    assert (found.body, found.key) == (body, key)
    texts = {name: value for name, value in headers.items() if name in facts.get("headers", {})}
    assert found.headers == encode_headers(texts | headers)  # Those that are text come first.


@given(st.lists(st.tuples(st.text(max_size=30).map(lambda name: "pubsub-" + name), st.text(max_size=30))))
def test_any_headers_are_accepted_or_refused(fields: list[tuple[str, str]]) -> None:
    latin = [(name.encode("latin-1", "replace").decode("latin-1").lower(), value.encode("latin-1", "replace")
              .decode("latin-1")) for name, value in fields]  # fmt: skip
    with contextlib.suppress(Problem):
        read_http(latin)


@given(st.one_of(st.binary(max_size=60), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["body", "key", "headers", "body_base64", "key_base64", "headers_base64"]), inner),
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_any_line_is_accepted_or_refused(line: bytes) -> None:
    with contextlib.suppress(Problem):
        read_lines([line])


def test_text_is_readable_and_other_bytes_are_escaped() -> None:
    block = encode_headers({"trace-id": b"a b, 100%", "X(1)": " ü".encode()})
    assert http_headers("grün".encode(), block, 1 << 20) == {
        "pubsub-key": "gr%C3%BCn",
        "pubsub-header-trace-id": "a b, 100%25",
        "pubsub-header-X%281%29": "%20%C3%BC",
    }


def test_unescaped_text_arrives_as_its_bytes() -> None:
    assert read_http([("pubsub-key", "ü".encode().decode("latin-1"))]) == ("ü".encode(), b"")


@pytest.mark.parametrize("fields", [
    [("pubsub-key", "a"), ("pubsub-key", "a")],
    [("pubsub-header-a", "1"), ("pubsub-header-a", "2")],
    [("pubsub-header-a", "1"), ("pubsub-header-%61", "2")],
    [("pubsub-keys", "a")],
    [("pubsub-topic", "a")],
    [("pubsub-header-", "a")],
    [("pubsub-header-a%3db", "a")],
    [("pubsub-header-" + "a" * 65, "a")],
    [("pubsub-header-a", "%")],
    [("pubsub-header-a", "%4")],
    [("pubsub-key", "%4x")],
    [("pubsub-header-a", "x" * MESSAGE_HEADERS_BYTES_MAX)],
    [(f"pubsub-header-{number}", "") for number in range(MESSAGE_HEADERS_MAX + 1)],
])  # fmt: skip
def test_invalid_headers_are_refused_in_one_sentence(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(Problem) as raised:
        read_http(fields)
    assert raised.value.status == 400
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("line", "said"), [
    (b"x", "not a JSON object"),
    (b"[" * 100_000, "not a JSON object"),
    (b'{"body": "a", "body": "b"}', "distinct names"),
    (b'["body"]', "a message may have body"),
    (b'{"body": "a", "id": "b"}', "a message may have body"),
    (b'{"key": "a"}', "no body"),
    (b'{"body": "a", "body_base64": "YQ=="}', "body is given twice"),
    (b'{"body": "a", "key": "a", "key_base64": "YQ=="}', "key is given twice"),
    (b'{"body": {"order": 1}}', "body must be text"),
    (b'{"body": "\\ud800"}', "body must be text"),
    (b'{"body_base64": "a"}', "body_base64 must be base64"),
    (b'{"body": "a", "headers": []}', "headers must be an object"),
    (b'{"body": "a", "headers": {"a": 1}}', "headers must be text"),
    (b'{"body": "a", "headers": {"a": "1"}, "headers_base64": {"a": ""}}', "given twice"),
    (b'{"body": "a", "headers": {"a b": "1"}}', "'a b' is not allowed"),
])  # fmt: skip
def test_an_invalid_line_is_refused_by_its_number(line: bytes, said: str) -> None:
    with pytest.raises(Problem, match=rf"^Line 2: .*{re.escape(said)}") as raised:
        read_lines([b'{"body": ""}', line])
    assert raised.value.status == 400


@pytest.mark.parametrize("line", [
    b'{"body": ' + b"[" * PARSED_BYTES_MAX,
    b'{"body": [' + b"[[]]," * PARSED_BYTES_MAX + b"[]]}",
    b'{"body": "", "headers": {' + b'"a": "b",' * PARSED_BYTES_MAX + b'"a": "b"}}',
])  # fmt: skip
def test_a_line_of_more_parts_than_a_message_has_is_not_parsed(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(Problem, match="Line 1: it is not a JSON object"):
        read_lines([line])


def test_a_long_line_that_is_a_message_is_read() -> None:
    headers = {f"h{number}": "x" * 400 for number in range(MESSAGE_HEADERS_MAX)}
    facts = {"body": 'ö\\"' * PARSED_BYTES_MAX, "key": "k" * PARSED_BYTES_MAX, "headers": headers}
    for bom in (b"", b"\xef\xbb\xbf"):
        (found,) = read_lines([bom + json.dumps(facts, ensure_ascii=False).encode()])
        assert found.body.decode() == facts["body"]


def test_a_message_needs_a_body_only() -> None:
    assert read_lines([b'{"body_base64": "/w=="}']) == [Wanted(b"\xff", b"", b"")]


def test_headers_too_large_for_a_receiver_are_omitted_and_named() -> None:
    block = encode_headers({"a": b"x" * 100})
    assert http_headers(b"k" * 100, block, 1 << 10).keys() == {"pubsub-key", "pubsub-header-a"}
    assert http_headers(b"k", block, 50) == {"pubsub-key": "k", "pubsub-omitted": "headers"}
    assert http_headers(b"k" * 200, block, 150) == {"pubsub-header-a": "x" * 100, "pubsub-omitted": "key"}
    assert http_headers(b"\0" * 45, block, 50) == {"pubsub-omitted": "key, headers"}
    assert http_headers(b"", b"", 0) == {}


@pytest.mark.parametrize("shift", range(4))
def test_the_preview_of_a_large_text_ends_at_a_character(shift: int) -> None:
    text = "a" * shift + "\N{GRINNING FACE}" * PREVIEW_BODY_BYTES
    found = preview(b"", b"", text.encode())
    assert found["cut"] == ["body"]
    assert text.startswith(found["body"])
    assert PREVIEW_BODY_BYTES - 3 <= len(found["body"].encode()) <= PREVIEW_BODY_BYTES


@given(st.binary(max_size=3 * PREVIEW_KEY_BYTES), st.binary(max_size=2 * PREVIEW_BODY_BYTES))
def test_the_preview_of_a_large_message_shows_the_beginnings(key: bytes, body: bytes) -> None:
    found = preview(key, encode_headers({"a": b"\xff"}), body)
    assert (found["bytes"], found["headers_base64"]) == (len(body), {"a": "/w=="})
    for name, value, most in (("key", key, PREVIEW_KEY_BYTES), ("body", body, PREVIEW_BODY_BYTES)):
        shown = base64.b64decode(found.get(f"{name}_base64", "")) or found.get(name, "").encode()
        assert (name in found["cut"]) == (len(value) > most)
        assert value.startswith(shown)
        assert min(len(value), most) - 3 <= len(shown) <= most
