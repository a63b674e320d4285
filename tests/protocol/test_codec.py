"""Every message round-trips; for anything else, `decode` raises only DecodeError."""

from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub.base.limits import HEADER_FIELDS_MAX, HEADER_LENGTH_MAX, NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import decode, encode, request_route
from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.deletions import Delete, Deleted
from pubsub.protocol.families import Matching, Pattern, Patterns
from pubsub.protocol.messages import (
    Configure,
    Get,
    Heartbeat,
    Message,
    Operate,
    Outcome,
    Periodic,
    Publish,
    Put,
    Read,
    Report,
    Settings,
    Stage,
    Status,
    Subscribe,
    Unsubscribe,
)
from pubsub.protocol.pattern_table import PatternRow
from pubsub.protocol.register import KINDS, Accept, Admit, Forget, Look, Prepare, View, Vote, VoteOutcome
from pubsub.protocol.standby import REPAIR_STEPS, STEPS, Ack, Copy, Entries, EntryId, Follow, Repair
from pubsub.protocol.stores import Known, format_stores
from pubsub.protocol.topic_objects import Purge
from pubsub.protocol.transfers import Merge, Owners, Transfer
from tests.protocol.drawn import (
    bodies,
    flags,
    hexes,
    history,
    ids,
    maybe,
    names,
    numbers,
    positions,
    topics,
    views,
    words,
)
from tests.protocol.drawn_groups import GROUPS, group_values

holders = st.lists(ids | st.builds("{}.{}".format, ids, hexes), max_size=3).map(",".join)
topic_maps = st.dictionaries(topics, hexes | holders, max_size=8)
rosters = st.dictionaries(hexes, st.builds(Known, names, numbers), max_size=4).map(format_stores)
store_directory = {"stores": rosters, "gone": rosters}
deletion_rows = st.builds(Deletion, topics, st.integers(1, NUMBER_MAX))
pattern_rows = st.builds(PatternRow, ids, topics.map(lambda topic: f"{topic[:70]}.*"), numbers, st.booleans(), numbers)
stage_maps = st.dictionaries(ids, numbers, max_size=8)
sink = {"sender": ids, "topic": topics, "batch": numbers, "publisher": hexes, **history}
subscription = {"sender": ids, "topic": topics, "number": numbers, "epoch": numbers, **history}


register, member = {"sender": ids, "store": hexes, "token": numbers}, {"sender": ids, "store": hexes, "member": hexes}
starts = st.sampled_from(["earliest", "latest", "last:1", "last:10000", 0, 7, (16 * "a", 1)])
entries = st.builds(EntryId, numbers, numbers)
ranges = {"sender": ids, "topic": topics, "after": positions, "until": positions, "name": names, "history": maybe}
bounds = {"records_max": numbers, "bytes_max": numbers, "start": starts, "before": numbers, "times": flags}
FIELDS: dict[type, dict[str, st.SearchStrategy]] = {
    Entries: {
        **member,
        "term": numbers,
        "loop": numbers,
        "end": entries,
        "committed": entries,
        "hand": flags,
        "body": st.binary(max_size=50),
    },
    Follow: {
        **member | {"known": numbers, "token": numbers, "gap": flags, "address": words, "form": numbers},
        "body": st.binary(max_size=50),
        "proxies": st.just("") | hexes,
    },
    Ack: {**member, "term": numbers, "loop": numbers, "durable": entries, "full": flags},
    Copy: {
        **member,
        "step": st.sampled_from(sorted(STEPS)),
        "token": numbers,
        "term": numbers,
        "snapshot": entries,
        "first": numbers,
        "pages": numbers,
        "page_bytes": numbers,
        "body": st.binary(max_size=50),
    },
    Repair: {
        **member,
        "step": st.sampled_from(sorted(REPAIR_STEPS)),
        "term": numbers,
        "end": entries,
        **dict.fromkeys(("log", "offset", "count", "publisher", "counter", "stamp", "checksum", "total"), numbers),
        "body": st.binary(max_size=50),
    },
    Prepare: {
        **register,
        "member": hexes,
        "ballot": numbers,
        "kind": st.sampled_from(sorted(KINDS)),
        "sticky_ms": numbers,
    },
    Accept: {**register, "member": hexes, "ballot": numbers, "view": views()},
    Look: register,
    Admit: {**register, "identity": hexes, "promised": numbers, "ballot": numbers, "view": views()},
    Vote: {
        **register,
        "outcome": st.sampled_from(VoteOutcome),
        "identity": hexes,
        "promised": numbers,
        "ballot": numbers,
        "view": st.none() | views(),
        "silence_ms": st.just(-1) | numbers,
    },
    Forget: {"sender": ids, "store": hexes, "member": hexes, "identity": hexes, "done": flags},
    Subscribe: dict(
        **subscription,
        name=names,
        start=starts,
        continues=flags,
        pattern=numbers,
        group=st.sampled_from(["", "any", "shared", "keyed"]),
        **group_values,
    ),
    Unsubscribe: dict(**subscription, name=names, group=flags, force=flags),
    **GROUPS,
    Pattern: {"sender": ids, "pattern": topics, "number": numbers, "stamp": numbers, "end": flags},
    Delete: {"sender": ids, "topic": topics, "number": numbers},
    Deleted: {"sender": ids, "digest": hexes, "rows": st.lists(deletion_rows, max_size=4).map(tuple)},
    Matching: {"sender": ids, "pattern": topics, "known": numbers, "wait_ms": numbers},
    Patterns: {"sender": ids, "digest": hexes, "rows": st.lists(pattern_rows, max_size=4).map(tuple)},
    Configure: dict(sender=ids, topic=topics, version=hexes, base=maybe, create=flags, values=bodies, **history),
    Settings: dict(sender=ids, topic=topics, **history),
    Purge: dict(sender=ids, topic=topics, unread=flags, places=bodies, **history),
    Get: dict(
        **subscription,
        last=positions,
        after=positions,
        records_max=numbers,
        bytes_max=numbers,
        wait_ms=numbers,
        name=names,
    ),
    Read: dict(**ranges, **bounds, **history, tombstones=numbers),
    Stage: dict(**sink, attempt=ids, first=numbers, count=numbers, checksum=numbers, body=bodies),
    Publish: dict(**sink, stages=stage_maps),
    Put: dict(
        sender=ids,
        topic=topics,
        counter=numbers,
        publisher=hexes,
        count=numbers,
        previous=numbers,
        checksum=numbers,
        sole_owner=flags,
        body=bodies,
        cumulative=flags,
        rows=st.integers(0, 64),
        **history,
    ),
    Periodic: {
        "sender": ids,
        "store": hexes,
        "incarnation": numbers,
        "change": numbers,
        "address": words,
        "proxies": words,
        "stamp": numbers,
        "partial": flags,
        "topics": topic_maps,
        "previous": numbers,
        "draining": flags,
        "made": numbers,
        "member": st.just("") | hexes,
        "patterns": maybe,
        "defaults": maybe,
        "deletions": maybe,
        **store_directory,
    },
    Heartbeat: {"sender": ids, "stamp": numbers, "leaving": flags, "empty": flags},
    Owners: {"sender": ids, "topics": topic_maps},
    Merge: {"sender": ids, "topic": topics, "address": words.filter(bool), "log": st.just("") | hexes},
    Transfer: {
        "sender": ids,
        "topic": topics,
        "step": words,
        "transfer": st.just("") | hexes,
        "chunk": numbers,
        "log": st.just("") | hexes,
        "body": bodies,
        "deletion": numbers,
        "store": st.just("") | hexes,
        "change": numbers,
        "form": numbers,
    },
    Report: {"sender": ids, "target": ids | st.just("-"), "topic": st.just("") | topics},
    Operate: {
        "sender": ids,
        "target": ids | st.just("-"),
        "action": st.from_regex(r"[a-z]{1,20}", fullmatch=True),
        "topic": st.just("") | topics,
        "server": names,
        "address": words,
        "subscriber": words,
        "log": st.just("") | hexes,
        "store": st.just("") | hexes,
        "stop": flags,
        "member": st.just("") | hexes,
        "number": numbers,
    },
    Status: {
        "history": maybe,
        "sender": ids,
        "outcome": st.sampled_from(Outcome),
        "message": positions,
        "reason": words,
        "last": st.just(-1) | numbers,
        "position": positions,
        "first": positions,
        "number": numbers,
        "epoch": numbers,
        "log": st.just("") | hexes,
        "records": numbers,
        "checksum": numbers,
        **dict.fromkeys(("change", "stamp", "rows", "since", "term", "clock"), numbers),
        "server": st.just("") | ids,
        "doubtful": flags,
        "patterns": maybe,
        "defaults": words,
        "after": numbers,
        "silent": words,
        **store_directory,
        "body": bodies,
    },
}
STRATEGIES = {kind: st.builds(kind, **strategies) for kind, strategies in FIELDS.items()}
messages = st.one_of(*STRATEGIES.values())

HEAD = b"PUT billing orders 7 publisher=0123456789abcdef count=1 previous=0 crc=1 !v=1\r\n\r\n"

PREPARE = b"PREPARE s1 %b member=%b ballot=2 token=3 kind=take !v=1\r\n\r\n" % (b"0" * 16, b"a" * 16)
ACCEPT = b"ACCEPT s1 %b member=%b ballot=2 token=3 view=7/%b/%b,%b/%b/tcp://h:1 !v=1\r\n\r\n" % (
    b"0" * 16, b"a" * 16, b"a" * 16, b"a" * 16, b"b" * 16, b"a" * 16,
)  # fmt: skip


def test_every_message_and_every_field_is_tried_here():
    assert set(FIELDS) == set(get_args(Message))
    for kind, strategies in FIELDS.items():
        assert {field.name for field in fields(kind)} == strategies.keys(), kind


@given(messages)
def test_every_message_round_trips(message):
    head, body = encode(message)
    assert decode(head, body) == message
    assert len(head) <= HEADER_LENGTH_MAX


@given(messages)
def test_a_message_in_one_piece_equals_one_with_a_separate_body_frame(message):
    head, body = encode(message)
    joined = decode(memoryview(head + bytes(body)))
    assert joined == message


@given(messages)
def test_a_header_is_one_line_of_ascii_with_its_version(message):
    head, _ = encode(message)
    assert head.endswith(b" !v=1\r\n\r\n")
    assert head[:-4].isascii()
    assert b"\r" not in head[:-4]
    assert b"\n" not in head[:-4]
    assert b"  " not in head


def decodes_or_says_so(contents, body=None):
    try:
        message = decode(contents, body)
    except DecodeError as error:
        text = str(error)
    else:
        text = ""
        assert isinstance(message, get_args(Message))
    assert "\n" not in text
    assert len(text) < 2000


@given(st.binary(max_size=400), st.none() | bodies)
@example(b"", None)
@example(b"\r\n\r\n", None)
@example(b"STATUS s1 success -1 -1 !v=1\r\n\r\n", None)
def test_arbitrary_bytes_raise_only_decode_error(contents, body):
    """The rule is docs/explanation/protocol.md, V3."""
    decodes_or_says_so(contents, body)


@given(
    st.lists(
        st.sampled_from(
            [
                "PUT",
                "GET",
                "STATUS",
                "PERIODIC",
                "a",
                "orders",
                "7",
                "-1",
                "!v=1",
                "log=",
                "=",
                "",
                "count=1",
                "log=0123456789abcdef",
                "!x=1",
                "success",
                "topics=1",
                "body=1",
            ]
        ),
        max_size=12,
    )
)
def test_words_in_any_order_raise_only_decode_error(parts):
    decodes_or_says_so(" ".join(parts).encode() + b"\r\n\r\n")


@given(messages, st.data())
def test_mutated_bytes_raise_only_decode_error(message, data):
    head, body = encode(message)
    raw = bytearray(head + bytes(body))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "delete"])):
            case "flip" if raw:
                raw[place] = data.draw(st.integers(0, 255))
            case "cut":
                del raw[place:]
            case "insert":
                raw[place:place] = data.draw(st.binary(min_size=1, max_size=5))
            case _:
                del raw[place : place + 3]
    decodes_or_says_so(bytes(raw))


BAD = ["../x", "", " ", "a b", "a\r\nb", "a\0b", "x" * 10_240, "ä"]


@pytest.mark.parametrize("name", BAD, ids=lambda n: repr(n)[:12])
@pytest.mark.parametrize("field", ["sender", "topic"])
def test_an_unchecked_name_of_a_client_is_refused(field, name):
    words = {"sender": b"billing", "topic": b"orders", field: name.encode()}
    head = b"PUT %(sender)b %(topic)b 7 publisher=0123456789abcdef count=1 previous=0 crc=1 !v=1\r\n\r\n"
    raw = head % {key.encode(): value for key, value in words.items()}
    if (field, name) == ("topic", "../x"):
        assert decode(raw).topic == "../x"  # It is a topic; `file_name` makes a harmless name of it.
        return
    with pytest.raises(DecodeError):
        decode(raw)


def test_an_unknown_field_of_a_newer_peer_is_ignored():
    """The rule is docs/explanation/protocol.md, V1."""
    assert decode(HEAD.replace(b" !v=1", b" colour=blue !v=1")) == decode(HEAD)


def test_a_ballot_with_an_unknown_field_is_the_same_ballot():
    assert decode(PREPARE.replace(b" !v=1", b" weight=2 !v=1")) == decode(PREPARE)
    assert decode(ACCEPT.replace(b" !v=1", b" weight=2 !v=1")).view == View(
        7, "a" * 16, "tcp://h:1", ("a" * 16, "b" * 16), ("a" * 16,)
    )


def test_a_field_that_is_insisted_on_and_not_known_refuses_the_message():
    with pytest.raises(DecodeError, match="insists on '!colour=blue'"):
        decode(HEAD.replace(b" !v=1", b" !colour=blue !v=1"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (HEAD.replace(b" !v=1", b""), "without !v=1"),
        (HEAD.replace(b"!v=1", b"!v=2"), "insists on '!v=2'"),
        (HEAD.replace(b" count=1", b""), "without count"),
        (HEAD.replace(b"count=1", b"count=1 count=1"), "count twice"),
        (HEAD.replace(b"count=1", b"count"), "a field that has no value"),
        (HEAD.replace(b"count=1", b"count=-1"), "not a number"),
        (HEAD.replace(b"count=1", b"count=9223372036854775808"), "not a number"),
        (HEAD.replace(b" orders 7", b""), "PUT"),
        (HEAD.replace(b"PUT ", b"PUT  "), "not an ID"),
        (HEAD.replace(b"PUT", b"SHOUT"), "no message is named 'SHOUT'"),
        (HEAD.replace(b"PUT", b"put"), "no message is named"),
        (HEAD.replace(b"\r\n\r\n", b"\n\n"), "no end of the header"),
        (b"REPORT a - !v=1\r\n\r\nbody", "with a body"),
        (b"OPERATE a - !v=1\r\n\r\n", "an action"),
        (b"OPERATE a s1 Move! !v=1\r\n\r\n", "not an action"),
        (b"PUT " + b"a=1 " * HEADER_FIELDS_MAX + b"!v=1\r\n\r\n", "fields, above"),
        (b"PUT " + b"x" * HEADER_LENGTH_MAX + b"\r\n\r\n", "no end of the header within"),
        (b"STATUS s1 fine !v=1\r\n\r\n", "not a status"),
        (b"SUBSCRIBE s1 t number=1 opening=1 name=x from=now !v=1\r\n\r\n", "not a position"),
        (b"HEARTBEAT s1 leaving=2 !v=1\r\n\r\n", "not 0 or 1"),
        (PREPARE.replace(b"take", b"steal"), "not a kind of attempt"),
        (PREPARE.replace(b"token=3", b"token=3 !whole=1"), "insists on '!whole=1'"),
        (ACCEPT.replace(b"7/", b"x/"), "not a number"),
        (ACCEPT.replace(b"a" * 16 + b"," + b"b" * 16, b"b" * 16 + b"," + b"a" * 16), "members not sorted"),
        (ACCEPT.replace(b"," + b"b" * 16, b"," + b"a" * 16), "named twice"),
        (ACCEPT.replace(b"," + b"b" * 16, b"," + b"b" * 16 + b"," + b"c" * 16), "not 1 to 2 members"),
        (ACCEPT.replace(b"7/" + b"a" * 16, b"7/" + b"b" * 16), "a primary that is not in sync"),
        (ACCEPT.replace(b"/" + b"a" * 16 + b"/tcp", b"/" + b"a" * 16 + b"," + b"c" * 16 + b"/tcp"), "no member"),
        (ACCEPT.replace(b"tcp://h:1", b""), "not an address"),
        (b"VOTE p1 " + b"0" * 16 + b" maybe !v=1\r\n\r\n", "not a vote"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_reason_names_the_broken_rule(raw, reason):
    with pytest.raises(DecodeError) as caught:
        decode(raw)
    assert reason in str(caught.value)


def test_bytes_between_the_header_and_a_separate_body_are_refused():
    with pytest.raises(DecodeError, match="between"):
        decode(HEAD + b"x", b"body")


@given(messages)
def test_the_route_of_a_request_is_read_without_decoding_the_rest(message):
    head = encode(message)[0]
    if isinstance(message, Subscribe | Unsubscribe | Configure | Settings | Purge | Get | Read | Put | Stage | Publish):
        assert request_route(head) == (head.split(b" ")[0].decode(), message.sender, message.topic)
    elif isinstance(message, Report | Operate):
        assert request_route(head) == (head.split(b" ", 1)[0].decode(), message.sender, message.target)


@given(st.binary(max_size=400))
def test_the_route_of_arbitrary_bytes_is_none_or_three_words(raw):
    route = request_route(raw)
    assert route is None or all(isinstance(word, str) for word in route)
