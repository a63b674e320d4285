"""The decisions of a keyed proxy agree with the server's reading of each message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.messenger.framing import pack, unpack
from pubsub.protocol import (
    Configure,
    Get,
    Heartbeat,
    Message,
    Operate,
    Outcome,
    Put,
    Report,
    Status,
    Subscribe,
    decode,
    encode,
)
from pubsub.protocol.register import Vote, VoteOutcome
from pubsub.protocol.topic_objects import Purge
from pubsub.proxy import rights as module
from pubsub.proxy.rights import Course, Rights, facts
from pubsub.security.access import Access, Why
from pubsub.security.authorized import parse
from pubsub.security.questions import question_of
from tests.proxy.test_hostile import MEMBERS
from tests.security.keyring import key, pk
from tests.security.test_questions import hostile, likely

SECRET = b"one that a test may know"
RULES = (
    f"server s1 {pk('s1')}\nserver s2 {pk('s2')}\nclient ann {pk('ann')} put=t get=t\nclient ops {pk('ops')} operate\n"
)


def rights(rules: str = RULES, generation: int = 7) -> Rights:
    return Rights(Access(parse(rules.encode()), generation), SECRET)


def user(of: Rights, name: str) -> str:
    found = of.access.user(key(name))
    assert found is not None
    return found.name


def head(message: Message) -> bytes:
    return pack(7, 40, 0) + encode(message)[0]


def put(topic: str = "t", sender: str = "ann") -> Put:
    return Put(sender, topic, 1, "0" * 16, 1, 0, 0)


# Requests


@pytest.mark.parametrize(
    ("who", "message", "course", "why"),
    [
        ("ann", put(), Course.GOES, Why.NONE),
        ("ann", Get("ann", "t", None, 1, 1), Course.GOES, Why.NONE),
        ("ann", Subscribe("ann", "t", 1, 1), Course.AUDIT, Why.NONE),
        ("ops", Report("pubsub-status", "-"), Course.GOES, Why.NONE),
        ("ops", Operate("pubsub-operator", "-", "forget", store="0" * 16), Course.AUDIT, Why.NONE),
        ("ops", Configure("ops", "t", "a" * 16, create=1), Course.AUDIT, Why.NONE),
        ("ops", Purge("ops", "t", 1), Course.AUDIT, Why.NONE),
        ("ann", Purge("ann", "t", 1), Course.DENY, Why.RIGHT),
        ("ann", put("u"), Course.DENY, Why.RIGHT),
        ("ann", put("t", "bob"), Course.DENY, Why.SENDER),
        ("ann", Get("ann", "t", None, 1, 1, name="n"), Course.DENY, Why.RIGHT),
        ("ann", Report("ann", "-"), Course.DENY, Why.RIGHT),
        ("ann", Operate("ops", "-", "forget", store="0" * 16), Course.DENY, Why.RIGHT),
        ("ann", Heartbeat("s1"), Course.DENY, Why.RIGHT),
        ("ann", Status("s1", Outcome.SUCCESS), Course.DROP, Why.RIGHT),
        ("ann", Vote("p1", "0" * 16, VoteOutcome.REPORTED, 1, "f" * 16), Course.DROP, Why.RIGHT),
        *[("ann", asked, Course.DENY, Why.RIGHT) for asked in MEMBERS if not isinstance(asked, Vote)],
        ("s1", put(), Course.DENY, Why.ROLE),
    ],
)  # fmt: skip
def test_a_request_is_forwarded_or_denied_by_its_user(who: str, message: Message, course: Course, why: Why) -> None:
    judge = rights()
    for _ in range(2):  # The second one is found in a table.
        asked = judge.request(user(judge, who), head(message))
        assert (asked.course, asked.verdict.why) == (course, why)
        assert asked.question == question_of(message)


def test_a_permission_covers_no_other_question() -> None:
    judge = rights()
    ann = user(judge, "ann")
    for message in (Get("ann", "t", None, 1, 1), Subscribe("ann", "t", 1, 1), put()):
        assert judge.request(ann, head(message)).verdict.allowed
    for message in (Get("ann", "t", None, 1, 1, name="n"), Subscribe("ann", "t", 1, 1, name="n")):
        assert not judge.request(ann, head(message)).verdict.allowed
    assert not judge.request(user(judge, "ops"), head(put())).verdict.allowed
    assert judge.request(ann, head(put())[:-4]).course is Course.REFUSE


@pytest.mark.parametrize("bad", [b"", b"1-40-0", b"1-40-0-PUT ann t", b"1-40-0-PUT ann t 1 !v=1", b"c\x00\xff"])
def test_an_unreadable_request_is_refused(bad: bytes) -> None:
    judge = rights()
    judge.request(user(judge, "ann"), head(put()))
    assert judge.request(user(judge, "ann"), bad).course is Course.REFUSE


def test_a_request_is_decided_anew_when_the_rules_have_changed() -> None:
    judge = rights()
    ann = user(judge, "ann")
    assert judge.request(ann, head(put())).course is Course.GOES
    judge.access.replace(parse(RULES.replace("put=t", "put=u").encode()))
    assert judge.request(ann, head(put())).course is Course.DENY
    judge.access.replace(parse(b"#\n"))
    assert judge.request(ann, head(put("u"))).verdict.why is Why.KEY


def test_no_table_grows_with_invented_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASKED_MAX", "TAGS_MAX"):
        monkeypatch.setattr(module, name, 10)
    judge = rights(f"client * {pk('any')} put=* get=* operate\n")
    who = user(judge, "any")
    for k in range(100):
        judge.request(who, head(put(f"t{k}")))
        judge.request(who, b"1-40-0-OPERATE a %s x !v=1\r\n\r\n" % (b"y" * k))
        judge.request(who, b"1-40-0-NONSENSE%d a %s x !v=1\r\n\r\n" % (k, b"y" * k))
        judge.tagged(f"client:{k}", b"link")
        judge.answered(b"c" + k.to_bytes(8, "big") + b"\x01xlink")
    assert all(len(table) <= 10 for table in (judge._asked, judge._tags, judge._masks))
    assert {kind[1] for kind in judge._asked} == {b"PUT"}


SAME_WORDS = st.tuples(
    st.sampled_from([b"GET alice orders -1", b"READ alice orders -1", b"SUBSCRIBE bob orders number=1"]),
    st.lists(st.sampled_from([b"name=a", b"name=b", b"number=1", b"opening=1", b"x=name=c", b"name="]), max_size=4),
).map(lambda drawn: b" ".join([drawn[0], *drawn[1], b"!v=1\r\n\r\n"]))
"""Requests of which many begin in the same way."""

USERS = st.sampled_from(["alice", "bob", "s1"])
PATTERNS = st.sampled_from(["*", "orders", "ord*", "*.y", "x*", "-", "alice", "a*"])
LISTS = st.lists(PATTERNS, min_size=1, max_size=3).map(",".join)


@st.composite
def rules(draw: st.DrawFn) -> str:
    """A file with one line for each of two clients, and a server."""
    lines = [f"server s1 {pk('s1')}"]
    for owner in ("alice", "bob"):
        words = ["client", draw(st.sampled_from([owner, "*", f"{owner}*"])), pk(owner)]
        words += [f"put={draw(LISTS)}"] if draw(st.booleans()) else []
        words += [f"get={draw(LISTS)}"] if draw(st.booleans()) else []
        words += [f"names={draw(st.sampled_from(['*', 'a', 'b,a*']))}"] if draw(st.booleans()) else []
        words += draw(st.lists(st.sampled_from(["status", "operate"]), unique=True))
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


@settings(max_examples=4 * settings().max_examples)
@given(rules(), rules(), st.lists(st.tuples(USERS, st.one_of(likely, hostile, SAME_WORDS)), min_size=1, max_size=8))
def test_the_decision_on_a_header_is_the_decision_on_the_message_that_the_server_reads(
    first: str, second: str, messages: list[tuple[str, bytes]]
) -> None:
    """As the proxy calls it: one Rights for all, messages again and again, the rules changed in between."""
    judge = rights(first)
    users = {name: user(judge, name) for name in ("alice", "bob", "s1")}
    for now in (first, second):
        judge.access.replace(parse(now.encode()))
        for name, contents in messages * 2:
            allowed = judge.request(users[name], pack(1, 40, 0) + contents).verdict.allowed
            try:
                message = decode(contents)
            except DecodeError:
                continue
            fresh = Access(parse(now.encode()))
            assert allowed == fresh.decide(users[name], *question_of(message)).allowed, (name, contents)


# Links with tags


def test_an_answer_finds_its_client_while_its_users_line_is_unchanged() -> None:
    judge = rights()
    ann, link = user(judge, "ann"), b"\x01link of ann's"
    tagged = judge.tagged(ann, link)
    assert tagged != link
    assert judge.untagged(tagged) == judge.answered(b"c" + tagged) == link
    judge.access.replace(parse((RULES + f"client bob {pk('bob')}\n").encode()))
    assert judge.answered(b"c" + tagged) == link
    judge.access.replace(parse(RULES.replace("put=t", "put=u").encode()))
    assert judge.answered(b"c" + tagged) is None
    again = judge.tagged(ann, link)
    assert judge.answered(b"c" + again) == link
    judge.access.replace(parse(b"#\n"))
    assert judge.answered(b"c" + again) is None


def test_an_answer_to_a_request_of_an_earlier_process_or_of_nobody_is_dropped() -> None:
    before, now = rights(generation=7), rights(generation=8)
    tagged = before.tagged(user(before, "ann"), b"link")
    assert now.answered(b"c" + tagged) is None
    assert before.answered(b"c" + now.tagged(user(now, "ann"), b"link")) is None, "from a time to come"
    assert now.answered(b"c" + now.tagged("client:made-up#00000000", b"link")) is None


@given(st.binary(max_size=300))
def test_an_invented_origin_of_a_server_does_no_harm(origin: bytes) -> None:
    assert rights().answered(origin) is None
    rights().untagged(origin)


@given(st.binary(max_size=255), st.sampled_from(["ann", "ops"]))
def test_any_link_is_restored_unchanged(link: bytes, name: str) -> None:
    judge = rights()
    tagged = judge.tagged(user(judge, name), link)
    assert judge.answered(b"c" + tagged) == judge.untagged(tagged) == link


def test_a_server_learns_no_link_from_the_origins_it_sees() -> None:
    judge, link = rights(), b"\x01" + bytes(range(15))
    ann, ops = user(judge, "ann"), user(judge, "ops")
    seen = judge.tagged(ann, link)
    assert link not in seen
    # It has a client's key too, and knows what becomes of a link of its own; of another user's that says nothing.
    own = judge.tagged(ops, bytes(16))[-16:]
    assert bytes(a ^ b for a, b in zip(seen[-16:], own, strict=True)) != link
    other = Rights(judge.access, b"another process")
    assert other.tagged(ann, link)[-16:] != seen[-16:]


# Servers


def test_a_server_speaks_for_itself_only() -> None:
    judge = rights()
    s1, ann = user(judge, "s1"), user(judge, "ann")
    assert judge.may_use(s1, "")
    assert judge.may_use(s1, "s1")
    assert not judge.may_use(s1, "s2")
    assert not judge.may_use(ann, "")
    assert judge.speaks_for_itself(s1, head(Heartbeat("s1")))
    assert not judge.speaks_for_itself(s1, head(Heartbeat("s2")))
    assert judge.speaks_for_itself(s1, b"nonsense")
    judge.access.replace(parse(b"#\n"))
    assert not judge.may_use(s1, "")
    assert not judge.may_use(s1, "s1")


@given(st.one_of(likely, hostile))
def test_the_checked_sender_of_a_server_is_the_one_that_the_core_reads(contents: bytes) -> None:
    judge = rights(f"server alice {pk('s1')}\n")
    believed = judge.speaks_for_itself(user(judge, "s1"), pack(1, 0, 0) + contents)
    try:
        said = decode(contents, b"")
    except DecodeError:
        return
    assert believed == (said.sender == "alice")


# The audit


def test_the_audit_gets_the_facts_of_an_operation() -> None:
    said = Operate("pubsub-operator", "s1", "move", "orders", "s2", "tcp://h:1", log="0" * 16)
    assert facts(head(said)) == {
        "action": "move", "target": "s1", "sender": "pubsub-operator", "topic": "orders", "server": "s2",
        "address": "tcp://h:1", "log": "0" * 16,
    }  # fmt: skip
    assert facts(b"1-40-0-OPERATE a\r\n\r\n") == {}
    assert unpack(head(said)).source == 40


def test_the_audit_gets_the_facts_of_a_creation_and_of_a_purge() -> None:
    made = facts(head(Configure("ops", "t", "a" * 16, create=1, values=b"{}")))
    assert (made["action"], made["topic"], made["version"]) == ("configure", "t", "a" * 16)
    assert facts(head(Purge("ops", "t", 1))) == {"action": "purge", "sender": "ops", "topic": "t", "unread": 1}


def test_a_client_may_learn_only_a_topic_about_which_it_may_send_the_same_request() -> None:
    of = rights(RULES.replace("put=t get=t", "put=t,u get=t"))
    link = of.tagged(user(of, "ann"), b"link")
    assert of.may_name(link, head(put()), "u")
    assert not of.may_name(link, head(put()), "secret")
    assert not of.may_name(link, head(Subscribe("ann", "t", 1, 1)), "u")
    assert not of.may_name(b"short", head(put()), "u")
    assert not of.may_name(link, b"unreadable", "u")
