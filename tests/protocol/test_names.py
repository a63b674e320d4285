"""Names are checked before anything is built from them, above all paths.

The rules are those of docs/explanation/protocol.md, V4; docs/explanation/merge.md, M8.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NAME_LENGTH_MAX, NUMBER_MAX, TOPIC_LENGTH_MAX
from pubsub.errors import InvalidName
from pubsub.protocol.names import (
    Start,
    check_id,
    check_new_topic,
    check_topic,
    file_name,
    format_position,
    format_start,
    is_endpoint,
    is_hex,
    is_id,
    is_topic,
    keyed_endpoint,
    keyless_endpoint,
    may_be_one_server,
    parse_endpoint,
    parse_number,
    parse_position,
    parse_start,
    topic_of,
)

PRINTABLE = "".join(map(chr, range(33, 127)))
TOPICS = st.text(PRINTABLE, min_size=1, max_size=TOPIC_LENGTH_MAX)

NEVER = [
    "",
    " ",
    "a b",
    " a",
    "a ",
    "a\r\nb",
    "a\n",
    "\r\n",
    "a\0b",
    "\0",
    "a\tb",
    "ä",
    "x" * 10_240,
    "\x7f",
]
NEVER_AN_ID = ["../x", "..", ".", "a/b", "/", "a=b", "a,b", "!v", "a:b", "x" * (NAME_LENGTH_MAX + 1), *NEVER]
NEVER_A_TOPIC = ["x" * (TOPIC_LENGTH_MAX + 1), *NEVER]


@pytest.mark.parametrize("name", NEVER_AN_ID, ids=lambda n: repr(n)[:20])
@pytest.mark.parametrize("kind", ["client ID", "server ID"])
def test_an_invalid_id_is_refused_with_its_rule(kind, name):
    with pytest.raises(InvalidName, match=f"^{kind} .* is not allowed: 1-64 of ") as caught:
        check_id(kind, name)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NEVER_A_TOPIC, ids=lambda n: repr(n)[:20])
def test_an_invalid_topic_is_refused_with_its_rule(name):
    with pytest.raises(InvalidName, match=r"^topic .* is not allowed: 1-80 printable"):
        check_topic(name)


@pytest.mark.parametrize("name", ["a", "billing", "A-1_b.c", "...", "x" * NAME_LENGTH_MAX])
def test_an_allowed_id_is_itself(name):
    assert check_id("client ID", name) == name


@pytest.mark.parametrize("topic", ["orders", "zeromq/pyzmq", "a=b", "../x", ".", "..", "!", "x" * TOPIC_LENGTH_MAX])
def test_an_allowed_topic_is_itself(topic):
    assert check_topic(topic) == topic


@pytest.mark.parametrize("topic", ["*", ">", "#", "orders.*", "a>b", "c#", "_", "_internal", "$", "$sys"])
def test_a_reserved_topic_cannot_be_made_and_is_still_a_topic(topic):
    assert check_topic(topic) == topic
    with pytest.raises(InvalidName, match=r"is not allowed: \* > # and a leading _ or \$ are reserved"):
        check_new_topic(topic)


@pytest.mark.parametrize("topic", ["orders", "a_b", "a$", "zeromq/pyzmq", "a=b", "../x", "!"])
def test_any_other_topic_can_be_made(topic):
    assert check_new_topic(topic) == topic


@given(st.text(max_size=100))
def test_only_the_listed_characters_make_an_id(text):
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
    assert is_id(text) == (0 < len(text) <= 64 and set(text) <= allowed and text not in {".", ".."})
    assert is_topic(text) == (0 < len(text) <= 80 and set(text) <= set(PRINTABLE))


@given(TOPICS)
def test_a_topics_file_name_is_safe_and_leads_back(topic):
    name = file_name(topic)
    assert topic_of(name) == topic
    assert "/" not in name
    assert "\0" not in name
    assert name not in {"", ".", ".."}
    assert len(name) <= 255


@given(TOPICS, TOPICS)
def test_two_topics_never_share_a_file_name(one, other):
    assert (file_name(one) == file_name(other)) == (one == other)


@given(st.integers(0, NUMBER_MAX))
def test_a_number_has_one_spelling(number):
    assert parse_number(str(number)) == number
    for text in (f"0{number}", f"+{number}", f" {number}", f"{number} ", f"{number}\n", f"-{number}", f"{number}_0"):
        with pytest.raises(ValueError, match="not a number"):
            parse_number(text)


@pytest.mark.parametrize("text", ["", "9223372036854775808", "9" * 19, "9" * 10_000, "1e3", "0x1", "\u0661", "1.0"])
def test_an_invalid_number_of_63_bits_is_refused(text):
    with pytest.raises(ValueError, match="not a number") as caught:
        parse_number(text)
    assert len(str(caught.value)) < 100


@given(st.none() | st.tuples(st.from_regex(r"[0-9a-f]{16}", fullmatch=True), st.integers(0, NUMBER_MAX)))
def test_a_position_round_trips(position):
    assert parse_position(format_position(position)) == position


@pytest.mark.parametrize(
    "text", ["", "-2", "0", ".1", "0123456789abcdef", "0123456789abcdef.", "0123456789ABCDEF.1", "x.1"]
)
def test_an_invalid_position_is_refused(text):
    with pytest.raises(ValueError, match="not a"):
        parse_position(text)


@pytest.mark.parametrize("text", ["", "0123", "0123456789abcdeg", "0123456789ABCDEF", "0123456789abcdef\n", "0" * 17])
def test_an_invalid_hex_text_is_refused(text):
    assert not is_hex(text)
    assert is_hex("0123456789abcdef")


PLACES = st.one_of(
    st.builds("tcp://{}:{}".format, st.sampled_from(["10.0.0.2", "[::1]", "host-1.example"]), st.integers(1, 65_535)),
    st.text(PRINTABLE, min_size=1, max_size=100).map("ipc://{}".format),
)
IDS = st.text("abz019._-", min_size=1, max_size=NAME_LENGTH_MAX).filter(is_id)


@given(IDS, PLACES)
def test_the_endpoint_of_a_keyed_server_has_its_id_and_its_address(server: str, endpoint: str) -> None:
    told = keyed_endpoint(server, endpoint)
    assert is_endpoint(told)
    assert parse_endpoint(told) == (server, endpoint)


@given(PLACES)
def test_the_endpoint_of_a_keyless_server_never_looks_like_a_keyed_one(endpoint: str) -> None:
    told = keyless_endpoint(endpoint)
    assert is_endpoint(told)
    assert parse_endpoint(told) == ("", told)


@pytest.mark.parametrize(
    ("text", "server", "endpoint"),
    [
        ("tcp://s2@10.0.0.2:5701", "s2", "tcp://10.0.0.2:5701"),
        ("tcp://s2@[::1]:5701", "s2", "tcp://[::1]:5701"),
        ("ipc://s2@/run/s2", "s2", "ipc:///run/s2"),
        ("ipc://s2@@abstract", "s2", "ipc://@abstract"),
        ("ipc://@abstract", "", "ipc://@abstract"),
        ("ipc://./s2@x", "", "ipc://./s2@x"),
        ("ipc:///run/a@b", "", "ipc:///run/a@b"),
        ("inproc://s2@x", "", "inproc://s2@x"),
        ("tcp://..@10.0.0.2:5701", "", "tcp://..@10.0.0.2:5701"),
    ],
)
def test_an_endpoint_is_parsed_to_server_and_address(text: str, server: str, endpoint: str) -> None:
    assert parse_endpoint(text) == (server, endpoint)


def test_an_endpoint_within_a_process_has_no_id() -> None:
    assert keyed_endpoint("s2", "inproc://x") == "inproc://x"


@pytest.mark.parametrize(
    "text",
    ["", "s2@tcp://h:1", "tcp://s2@", "tcp://..@h:1", "tcp://a/b@h:1", "tcp://a@b@h:1", "ipc://s2@", "http://h:1"],
)
def test_an_unreachable_endpoint_is_refused(text: str) -> None:
    assert not is_endpoint(text)


def test_a_server_is_recognized_with_and_without_keys() -> None:
    bare, keyed, other = "tcp://10.0.0.2:1", "tcp://s2@10.0.0.2:1", "tcp://s3@10.0.0.2:1"
    assert may_be_one_server(bare, keyed)
    assert may_be_one_server(keyed, bare)
    assert may_be_one_server(keyed, keyed)
    assert not may_be_one_server(keyed, other)
    assert not may_be_one_server(keyed, "tcp://s2@10.0.0.2:2")


@pytest.mark.parametrize("name", [b"a", None, 7])
def test_a_name_that_is_not_text_is_refused(name: object) -> None:
    for check in (check_topic, lambda its: check_id("client ID", its)):
        with pytest.raises(InvalidName, match=f"it is text, not {type(name).__name__}$"):
            check(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "text"),
    [("earliest", "earliest"), ("latest", "latest"), (("a" * 16, 7), "a" * 16 + ".7"), (0, "@0"), (17, "@17")],
)
def test_a_start_has_one_spelling(start: Start, text: str) -> None:
    assert format_start(start) == text
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "-1", "7", "now", "@", "@-1", "@07", "a" * 16 + ".0"])
def test_an_invalid_start_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_start(text)
