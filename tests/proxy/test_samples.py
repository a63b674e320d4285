"""Which puts a proxy looks at, and when they count as answered."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.messenger.framing import pack
from pubsub.protocol import Get, Outcome, Put, Status, encode
from pubsub.proxy import samples as samples_module
from pubsub.proxy.samples import PATIENCE_SECONDS, SAMPLE_SECONDS, Samples

LOG, OTHER = "0123456789abcdef", "fedcba9876543210"


def put(callback: int, counter: int = 1, count: int = 1, log: str = "") -> bytes:
    return pack(1, callback, 0) + encode(Put("ann", "t", counter, "0" * 16, count, counter - 1, 5, log=log))[0]


def status(callback: int, outcome: Outcome = Outcome.SUCCESS, **fields: Any) -> bytes:
    return pack(0, 0, callback) + encode(Status("s1", outcome, **fields))[0]


def seen(samples: Samples) -> tuple[int, float]:
    counted = samples.histogram.counted()
    return sum(counted.counts), counted.total


def test_a_put_is_measured_until_its_answer() -> None:
    samples = Samples()
    samples.forwarded(b"c", put(40), 10.0)
    samples.answered(b"c", status(40, last=1, log=LOG), 10.25)
    assert seen(samples) == (1, 0.25)
    assert samples.waiting == {}


def test_a_request_other_than_a_put_is_not_sampled() -> None:
    samples = Samples()
    samples.forwarded(b"c", pack(1, 40, 0) + encode(Get("ann", "t", None, 1, 1))[0], 10.0)
    samples.forwarded(b"d", b"nonsense", 10.0)
    samples.forwarded(b"d", b"1-2-3-PUT a b " + b"9" * 10_000 + b" ", 10.0)
    assert samples.waiting == {}
    assert samples.due == 10.0 + SAMPLE_SECONDS


def test_one_put_of_each_client_is_sampled() -> None:
    samples = Samples()
    samples.forwarded(b"c", put(40), 10.0)
    samples.forwarded(b"c", put(41, 2), 11.0)
    samples.answered(b"c", status(41, last=2, log=LOG), 11.5)
    assert seen(samples) == (0, 0.0)  # It named no log, so another topic's answer may look like this.
    samples.answered(b"c", status(40, last=1, log=LOG), 12.0)
    assert seen(samples) == (1, 2.0)


def test_the_answer_to_a_later_put_of_the_same_log_ends_an_earlier_sample() -> None:
    samples = Samples()
    samples.forwarded(b"c", put(40, counter=11, count=10, log=LOG), 10.0)
    samples.answered(b"c", status(41, last=19, log=LOG), 10.5)
    samples.answered(b"c", status(42, last=30, log=OTHER), 10.5)
    samples.answered(b"c", status(43, records=3, log=LOG), 10.5)
    assert seen(samples) == (0, 0.0)
    samples.answered(b"c", status(44, last=20, log=LOG), 11.0)
    assert seen(samples) == (1, 1.0)


@pytest.mark.parametrize("outcome", [Outcome.BUSY, Outcome.FULL, Outcome.MOVED, Outcome.DUPLICATE])
def test_a_sample_of_an_untaken_put_is_given_up(outcome: Outcome) -> None:
    samples = Samples()
    samples.forwarded(b"c", put(40, log=LOG), 10.0)
    samples.answered(b"c", status(39, outcome, log=LOG), 10.1)  # another's
    assert b"c" in samples.waiting
    samples.answered(b"c", status(40, outcome, last=1, log=LOG), 10.2)
    assert (seen(samples), samples.given_up) == ((0, 0.0), 1)
    assert samples.waiting == {}


def test_an_unreadable_answer_ends_no_sample() -> None:
    samples = Samples()
    samples.forwarded(b"c", put(40), 10.0)
    for head in (b"", b"-", b"1-2", b"0-0-40-STATUS s1"):
        samples.answered(b"c", head, 10.1)
    assert b"c" in samples.waiting


def test_an_unanswered_sample_makes_room_for_the_next() -> None:
    samples = Samples()
    samples.forwarded(b"c", put(40), 10.0)
    samples.forwarded(b"c", put(41), 10.0 + PATIENCE_SECONDS)
    samples.answered(b"c", status(41, last=2), 11.0 + PATIENCE_SECONDS)
    assert (seen(samples), samples.given_up) == ((1, 1.0), 1)


def test_samples_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "SAMPLES_MAX", 2)
    samples = Samples()
    for client in (b"a", b"b", b"c"):
        samples.forwarded(client, put(40), 10.0)
    assert list(samples.waiting) == [b"b", b"c"]
    assert samples.given_up == 1
