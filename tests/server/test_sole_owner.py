"""Whole is asked of every proxy when it is needed, and never remembered.

The rules are those of docs/explanation/sole-ownership.md, W1, W2 and W3.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

import pytest

from pubsub.base.clock import Stamps
from pubsub.protocol import Outcome, Status
from pubsub.protocol.families import Patterns
from pubsub.protocol.pattern_table import PatternRow
from pubsub.server.ownership.contested import Contested
from pubsub.server.ownership.patterns import ServerPatterns
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.ownership.sole_owner import QUESTION_SECONDS, WAITING_MAX, SoleOwner, Trimming
from pubsub.server.ownership.stores import Stores
from pubsub.server.state.state import State
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.loaded import Loaded
from tests.server.stage import settings


class Asked:
    """A server with two proxies, or more, and what its operations were told."""

    def __init__(self, proxies: int = 2) -> None:
        named = tuple(f"tcp://127.0.0.1:{number}" for number in range(1, proxies + 1))
        own, stamps = settings(Path("unused"), proxies=named), Stamps(1.0, 0.0)
        loaded = Loaded("0" * 16, 1, 0, {}, [""], 1, 1)
        state = State(own, loaded, cast(BatchReader, None), stamps, Random(0), 0.0)
        self.state = state
        self.proxies = Proxies(own, loaded.store_id, 1, stamps, 0.0)
        self.patterns = ServerPatterns(state, self.proxies, {})
        contested = Contested(state, Stores(state, self.proxies, {}))
        self.sole_owner = SoleOwner(state, self.proxies, contested, self.patterns)
        self._told: list[tuple[str, bool]] = []

    @property
    def told(self) -> list[tuple[str, bool]]:
        self._told += [(asked.topic, sole) for asked, sole in self.sole_owner.decided() if isinstance(asked, Trimming)]
        return self._told

    def ask(self, *topics: str, size: int = 0) -> int:
        """Ask in one loop; the callback that answers are to name."""
        for topic in topics:
            assert self.sole_owner.ask(topic, Trimming(topic, 0, {}), size)
        self.proxies.out.clear()
        self.sole_owner.send(0.0)
        assert len(self.proxies.out) == len(self.proxies.all)
        return self.proxies.out[0].source

    def answer(
        self, token: int, proxy: int, body: bytes, outcome: Outcome = Outcome.SUCCESS, patterns: str = ""
    ) -> dict[str, frozenset[str]]:
        return self.sole_owner.answered(token, proxy, Status("p", outcome, body=body, patterns=patterns))


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_all_proxies_must_confirm_that_no_other_server_holds_the_topic(asked: Asked) -> None:
    token = asked.ask("t", "u")
    assert asked.answer(token, 0, b"t= u=") == {}
    assert asked.told == []
    assert asked.answer(token, 1, b"t= u=s2,s3") == {"u": frozenset({"s2", "s3"})}
    assert asked.told == [("t", True), ("u", False)]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [(b"", Outcome.SUCCESS), (b"u=", Outcome.SUCCESS), (b"\xff", Outcome.SUCCESS), (b"t=", Outcome.UNAVAILABLE)],
)
def test_a_proxy_without_an_answer_makes_the_ownership_unknown(asked: Asked, body: bytes, outcome: Outcome) -> None:
    token = asked.ask("t")
    asked.answer(token, 1, body, outcome)
    asked.answer(token, 0, b"t=")
    assert asked.told == [("t", False)]


def test_only_answers_to_the_same_question_count(asked: Asked) -> None:
    first = asked.ask("t")
    for proxy in (0, 1):
        asked.answer(first, proxy, b"t=")
    second = asked.ask("t")
    assert second != first
    asked.answer(first, 0, b"t=")
    asked.answer(second, 0, b"t=")
    asked.answer(second, 0, b"t=")  # the same proxy twice is not both
    assert asked.told == [("t", True)]
    asked.answer(second, 1, b"t=")
    assert asked.told == [("t", True)] * 2


def test_silence_makes_the_ownership_unknown_in_the_end(asked: Asked) -> None:
    token = asked.ask("t")
    asked.answer(token, 0, b"t=")
    assert asked.sole_owner.deadline() == QUESTION_SECONDS
    asked.sole_owner.tick(QUESTION_SECONDS - 0.01)
    assert asked.told == []
    asked.sole_owner.tick(QUESTION_SECONDS)
    assert asked.told == [("t", False)]
    asked.answer(token, 1, b"t=")
    assert asked.told == [("t", False)]
    assert asked.sole_owner.deadline() == float("inf")


def test_a_bounded_number_of_operations_waits(asked: Asked) -> None:
    token = asked.ask(*["t"] * WAITING_MAX)
    assert not asked.sole_owner.ask("t", Trimming("t", 0, {}))
    for proxy in (0, 1):
        asked.answer(token, proxy, b"t=")
    assert len(asked.told) == WAITING_MAX
    assert asked.sole_owner.ask("t", Trimming("t", 0, {}))


def test_two_of_three_proxies_suffice_and_the_third_comes_late() -> None:
    asked = Asked(3)
    token = asked.ask("t", "u")
    asked.answer(token, 2, b"t= u=")
    assert asked.told == []
    asked.answer(token, 0, b"t= u=s2")
    assert asked.told == [("t", True), ("u", False)]
    assert asked.answer(token, 1, b"t=s3 u=") == {}


def test_one_of_three_proxies_may_be_unable_to_answer_but_not_two() -> None:
    asked = Asked(3)
    token = asked.ask("t")
    asked.answer(token, 0, b"", Outcome.UNAVAILABLE)
    asked.answer(token, 1, b"t=")
    assert asked.told == []
    asked.answer(token, 2, b"t=")
    assert asked.told == [("t", True)]
    token = asked.ask("t")
    asked.answer(token, 0, b"", Outcome.UNAVAILABLE)
    asked.answer(token, 1, b"\xff")
    assert asked.told == [("t", True), ("t", False)]


def test_a_proxy_that_may_not_know_of_the_departure_of_the_topic_does_not_count() -> None:
    asked = Asked(3)
    asked.proxies.remember("t", "s2.0123456789abcdef,fedcba9876543210,9", 5)
    asked.proxies.all[2].given.clear()  # This one has heard.
    token = asked.ask("t")
    for proxy in (0, 1):
        asked.answer(token, proxy, b"t=")
    assert asked.told == []
    asked.answer(token, 2, b"t=")
    assert asked.told == [("t", False)]


def test_an_answer_counts_for_letting_go_only_with_the_patterns_that_the_server_knows() -> None:
    asked, others = Asked(3), "00000000000000ff"
    token = asked.ask("t")
    asked.answer(token, 0, b"t=", patterns=others)
    asked.answer(token, 1, b"t=")
    assert asked.told == [("t", False)]
    row = PatternRow("billing", "orders.>", 1, True, 5)
    asked.patterns.told(0, Patterns("p", "f" * 16, (row,)))
    known = asked.patterns.known.digest
    token = asked.ask("t")
    asked.answer(token, 0, b"t=", patterns=known)
    asked.answer(token, 1, b"t=")  # This proxy has lost its file, or is of an earlier release.
    assert asked.told[-1] == ("t", False)
    token = asked.ask("t")
    asked.answer(token, 0, b"t=", patterns=known)
    asked.answer(token, 2, b"t=", patterns=known)
    assert asked.told[-1] == ("t", True)


def test_a_subscriber_is_denied_only_if_every_answer_denies_it() -> None:
    asked, operation = Asked(2), Trimming("t", 0, {})
    assert asked.sole_owner.ask("t", operation)
    asked.sole_owner.send(0.0)
    token = asked.proxies.out[-1].source
    asked.answer(token, 0, b"t=\nbilling t\naudit t u")
    asked.answer(token, 1, b"t=\naudit t")
    assert asked.told == [("t", True)]
    assert operation.denied == {"audit"}
    assert operation.informed
