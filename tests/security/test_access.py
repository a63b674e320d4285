"""Access: every decision, the effects of changed rules, and the agreement with a slow, plain reading of the rules."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.security import access as module
from pubsub.security.access import Access, Operation, Why
from pubsub.security.authorized import parse
from pubsub.security.fingerprints import fingerprint
from tests.security.keyring import key, pk

RULES = f"""\
proxy p1 {pk("p1")}
server s1 {pk("s1")}
client alice {pk("alice")} put=orders/*,audit get=orders/*
client spark-* {pk("spark")} put=* get=* names=nightly,roll-*
client ops {pk("ops")} operate
client look {pk("look")} status
client guest {pk("guest")}
"""


def user(role: str, name: str, owner: str = "") -> str:
    return f"{role}:{name}#{fingerprint(key(owner or name))}"


def opened(rules: str = RULES) -> Access:
    return Access(parse(rules.encode()))


ALICE, SPARK = user("client", "alice"), user("client", "spark-*", "spark")


@pytest.mark.parametrize(
    ("who", "operation", "sender", "topic", "name"),
    [
        (ALICE, "put", "alice", "orders/eu", ""),
        (ALICE, "put", "alice", "audit", ""),
        (ALICE, "get", "alice", "orders/", ""),
        (user("client", "guest"), "put", "guest", "$dead.guest", ""),
        (user("client", "guest"), "get", "guest", "$dead.guest", ""),
        (SPARK, "put", "spark-1", "any", ""),
        (SPARK, "get", "spark-", "any", ""),
        (SPARK, "get", "spark-1", "any", "nightly"),
        (SPARK, "get", "spark-1", "any", "roll-7"),
        (user("client", "ops"), "operate", "pubsub-operator", "", ""),
        (ALICE, "settings", "pubsub-operator", "orders/eu", ""),
        (user("client", "ops"), "settings", "pubsub-operator", "orders/eu", ""),
        (user("client", "ops"), "status", "pubsub-status", "", ""),
        (user("client", "look"), "status", "look", "", ""),
    ],
)
def test_an_allowed_operation_is_allowed(who: str, operation: str, sender: str, topic: str, name: str) -> None:
    assert opened().decide(who, operation, sender, topic, name) == (True, Why.NONE, "")


@pytest.mark.parametrize(
    ("who", "operation", "sender", "topic", "name", "why", "text"),
    [
        (ALICE, "put", "alice", "orders", "", Why.RIGHT, "client alice may not put to orders"),
        (ALICE, "get", "alice", "audit", "", Why.RIGHT, "client alice may not get from audit"),
        (ALICE, "get", "alice", "orders/eu", "nightly", Why.RIGHT, "may not use the subscription nightly of orders/eu"),
        (ALICE, "put", "bob", "orders/eu", "", Why.SENDER, "this key is alice's, not bob's"),
        (ALICE, "put", "alice2", "orders/eu", "", Why.SENDER, "this key is alice's, not alice2's"),
        (SPARK, "get", "spar", "any", "", Why.SENDER, "this key is spark-*'s, not spar's"),
        (SPARK, "get", "spark-1", "any", "daily", Why.RIGHT, "may not use the subscription daily of any"),
        (ALICE, "settings", "alice", "audit", "", Why.RIGHT, "client alice may not look at the settings of audit"),
        (user("client", "look"), "settings", "look", "any", "", Why.RIGHT, "client look may not look at the settings"),
        (ALICE, "status", "alice", "", "", Why.RIGHT, "client alice may not ask for status"),
        (ALICE, "operate", "alice", "", "", Why.RIGHT, "client alice may not operate"),
        (user("client", "look"), "operate", "look", "", "", Why.RIGHT, "client look may not operate"),
        (user("client", "guest"), "put", "guest", "orders/eu", "", Why.RIGHT, "client guest may not put to orders/eu"),
        (user("client", "guest"), "put", "guest", "$dead.alice", "", Why.RIGHT, "may not put to $dead.alice"),
        (user("client", "guest"), "get", "guest", "$dead.", "", Why.RIGHT, "may not get from $dead."),
        (user("client", "guest"), "get", "guest", "$dead.guest", "roll", Why.RIGHT, "may not get from $dead.guest"),
        (user("client", "guest"), "put", "alice", "$dead.alice", "", Why.SENDER, "this key is guest's, not alice's"),
        (user("client", "ops"), "other", "ops", "", "", Why.RIGHT, "client ops may not send this"),
        (user("server", "s1"), "put", "s1", "orders/eu", "", Why.ROLE, "server s1 is no client"),
        (user("proxy", "p1"), "operate", "p1", "", "", Why.ROLE, "proxy p1 is no client"),
        (user("client", "alice", "old"), "put", "alice", "audit", "", Why.KEY, "this key is not authorized any more"),
        ("", "put", "alice", "audit", "", Why.KEY, "this key is not authorized any more"),
        ("alice", "put", "alice", "audit", "", Why.KEY, "this key is not authorized any more"),
    ],
)
def test_a_denied_operation_has_its_reason_and_its_text(
    who: str, operation: str, sender: str, topic: str, name: str, why: Why, text: str
) -> None:
    verdict = opened().decide(who, operation, sender, topic, name)
    assert (verdict.allowed, verdict.why) == (False, why)
    assert text in verdict.text


@pytest.mark.parametrize(
    ("operation", "sender", "topic", "name"),
    [
        ("put", "", "orders", ""),
        ("put", "..", "orders", ""),
        ("put", "spark-*", "orders", ""),
        ("put", "spark-1", "", ""),
        ("put", "spark-1", "x\r\n\r\n.y", ""),
        ("put", "spark-1", "x y", ""),
        ("put", "spark-1", "x" * 81, ""),
        ("get", "spark-1", "orders", "roll-\n"),
        ("get", "spark-1", "orders", "roll-/"),
        ("get", "spark-1\n", "orders", ""),
        ("settings", "spark-1", "", ""),
        ("settings", "spark-1", "x y", ""),
        ("status", "spark-1", "orders", ""),
        ("other", "spark-1", "orders", ""),
    ],
)
def test_an_invalid_name_never_matches_a_pattern(operation: str, sender: str, topic: str, name: str) -> None:
    access = opened(f"client * {pk('all')} put=* get=* names=* call=* serve=* status operate\n")
    verdict = access.decide(user("client", "*", "all"), operation, sender, topic, name)
    assert (verdict.allowed, verdict.why) == (False, Why.FORM)
    assert verdict.text.isprintable()
    assert access._decisions == {}


def test_kept_decisions_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    access = opened()
    for number in range(25):
        assert access.decide(SPARK, "put", "spark-1", f"t{number}", "").allowed
        assert not access.decide(ALICE, "put", "alice", f"t{number}", "").allowed
        assert len(access._decisions) <= 10


# What is decided, against a plain reading of the rules ---------------------------------------------------------------

names = st.text("ab", min_size=1, max_size=3)
pattern = st.text("ab*", min_size=1, max_size=4)
topic_pattern = st.text("ab/*", min_size=1, max_size=4)
rule = st.fixed_dictionaries(
    {"role": st.sampled_from(["client", "client", "client", "server"]), "id": pattern},
    optional={
        "put": st.lists(topic_pattern, min_size=1, max_size=3),
        "get": st.lists(topic_pattern, min_size=1, max_size=3),
        "names": st.lists(pattern, min_size=1, max_size=3),
        "status": st.just(True),
        "operate": st.just(True),
    },
)


def written(number: int, one: dict[str, Any]) -> str:
    if one["role"] == "server":
        return f"server s{number} {pk(str(number))}\n"
    words = [f"{right}={','.join(one[right])}" for right in ("put", "get", "names") if right in one]
    words += [right for right in ("status", "operate") if right in one]
    return f"client {one['id']} {pk(str(number))} {' '.join(words)}\n"


def plainly(one: dict[str, Any], operation: str, sender: str, topic: str, name: str) -> bool:
    def among(patterns: list[str], text: str) -> bool:
        return any(re.fullmatch(re.escape(each).replace(r"\*", ".*"), text) for each in patterns)

    if one["role"] != "client":
        return False
    if operation == "pattern":
        return among([one["id"]], sender) and "get" in one
    if operation in {"status", "operate"}:
        return "operate" in one or (operation == "status" and "status" in one)
    if operation == "settings":
        return "operate" in one or among(one.get("get", []), topic)
    if operation not in {"put", "get"} or not among([one["id"]], sender) or not among(one.get(operation, []), topic):
        return False
    return not name or operation == "put" or among(one.get("names", []), name)


topics = st.text("ab/", min_size=1, max_size=4)
asked = st.tuples(st.integers(0, 3), st.sampled_from(list(Operation)), names, topics, st.one_of(st.just(""), names))


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(rule, min_size=1, max_size=4), st.lists(asked, max_size=12))
def test_every_decision_is_that_of_a_plain_reading_of_the_rules(rules: Any, questions: Any) -> None:
    access = Access(parse("".join(written(*each) for each in enumerate(rules)).encode()))
    for number, operation, sender, topic, name in questions * 2:  # The second time as they were kept.
        index = number % len(rules)
        topic = topic if operation in {"put", "get", "settings"} else ""  # noqa: PLW2901
        name = name if operation == "get" else ""  # noqa: PLW2901
        found = access.user(key(str(index)))
        assert found is not None
        verdict = access.decide(found.name, operation, sender, topic, name)
        assert verdict.allowed is plainly(rules[index], operation, sender, topic, name)
        assert verdict.allowed is (verdict.why is Why.NONE)


# The rules change ----------------------------------------------------------------------------------------------------


def test_rules_that_mean_the_same_change_nothing() -> None:
    access = opened()
    access.decide(ALICE, "put", "alice", "audit", "")
    kept = dict(access._decisions)
    assert access.replace(parse(b"# a comment\n" + RULES.encode())) == ((), ())
    assert (access.generation, access._decisions) == (1, kept)
    assert access.may_be_answered(ALICE, 1)


def test_a_removed_user_is_denied_from_the_next_question_on() -> None:
    access = opened()
    assert access.decide(ALICE, "put", "alice", "audit", "").allowed
    went = access.replace(parse("".join(line for line in RULES.splitlines(True) if "alice" not in line).encode())).went
    assert [line.user for line in went] == [ALICE]
    assert access.decide(ALICE, "put", "alice", "audit", "").why is Why.KEY
    assert access.user(key("alice")) is None


def test_a_request_from_before_a_change_of_its_users_line_is_not_answered() -> None:
    access = opened()
    asked = access.generation
    access.replace(parse(RULES.replace("put=orders/*,audit get=orders/*", "put=orders/*").encode()))
    assert not access.may_be_answered(ALICE, asked)
    assert access.may_be_answered(ALICE, access.generation)
    assert access.may_be_answered(SPARK, asked), "nobody notices whose line is the same"


def test_a_user_removed_and_authorized_again_gets_no_answer_to_earlier_requests() -> None:
    access = opened()
    asked = access.generation
    access.replace(parse("".join(line for line in RULES.splitlines(True) if "alice" not in line).encode()))
    between = access.generation
    assert not access.may_be_answered(ALICE, between)
    access.replace(parse(RULES.encode()))
    assert not access.may_be_answered(ALICE, asked)
    assert not access.may_be_answered(ALICE, between)
    assert access.may_be_answered(ALICE, access.generation)


def test_a_second_key_of_a_client_does_not_touch_the_first() -> None:
    access = opened()
    asked = access.generation
    access.replace(parse((RULES + f"client alice {pk('new')} put=audit\n").encode()))
    assert access.may_be_answered(ALICE, asked)
    assert access.decide(user("client", "alice", "new"), "put", "alice", "audit", "").allowed


def test_a_request_to_an_earlier_process_is_not_answered() -> None:
    assert not Access(parse(RULES.encode()), generation=100).may_be_answered(ALICE, 99)


@pytest.mark.parametrize(
    ("who", "server"),
    [
        (user("server", "s1"), "s1"),
        (user("server", "s1", "other"), ""),
        (user("proxy", "p1"), ""),
        (ALICE, ""),
        ("", ""),
        ("s1", ""),
    ],
)
def test_the_server_of_a_user_is_known(who: str, server: str) -> None:
    assert opened().server(who) == server


def test_the_topics_of_a_pattern_follow_the_present_rights_of_its_subscriber() -> None:
    access = opened()
    assert access.may_get("alice", "orders/1")
    assert not access.may_get("alice", "audit")
    assert access.may_get("spark-7", "audit")
    assert not access.may_get("guest", "audit")
    assert not access.may_get("nobody", "audit")
    access.replace(parse(RULES.replace("get=orders/*", "get=audit").encode()))
    assert not access.may_get("alice", "orders/1")
    assert access.may_get("alice", "audit")
