"""One webhook at work: each try counts, for any message and any failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pubsub.errors import StorageError
from pubsub.gateway.limits import WEBHOOK_ATTEMPTS_MAX
from pubsub.gateway.mailbox import Mailbox
from pubsub.gateway.registry import Subscriber, Webhook
from pubsub.gateway.webhooks import dead_letters, delivery_worker
from pubsub.gateway.webhooks.delivery_worker import DeliveryWorker
from pubsub.gateway.webhooks.posting import Outcome, make_http_client
from pubsub.web.backoff import Backoff
from tests.gateway.test_mailbox_rows import File, add

HOOK = Subscriber("http", "t", "w", Webhook("http://127.0.0.1:9/", ("whsec_" + "A" * 32,)))


class Served(File):
    """A client's file, of a topic in which nothing comes; `refused` has writes that its disk refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: Callable[[int], bool] = lambda attempt: False
        self.refusals = 0

    async def hand_on(self, *_: Any) -> int:
        await asyncio.Event().wait()
        return 0

    def write(self, function: Callable[[Any], Any]) -> Any:
        if self.refused(self.refusals):
            self.refusals += 1
            raise StorageError("gateway.db", "disk I/O error")
        return super().write(function)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many attempts it was paused; each pause is short."""
    seen: list[int] = []

    class Short(Backoff):
        def seconds(self, attempts: int, chance: float, asked: float = 0.0) -> float:
            seen.append(attempts)
            return 0.001

    monkeypatch.setattr(delivery_worker, "BACKOFF", Short((0.001,)))
    return seen


def work(file: Served, over: Callable[[DeliveryWorker], bool]) -> DeliveryWorker:
    """A webhook that works until that is so."""

    async def main() -> DeliveryWorker:
        async with make_http_client() as http_client:
            one = DeliveryWorker(HOOK, Mailbox(file, "t"), http_client, Random(1))  # type: ignore[arg-type]
            working = asyncio.create_task(one.run())
            try:
                async with asyncio.timeout(20):
                    while not over(one):
                        await asyncio.sleep(0.005)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            return one

    return asyncio.run(main())


def posts(monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], Outcome]) -> list[bytes]:
    """The bodies that were posted, each answered so."""
    sent: list[bytes] = []

    async def post(http_client: Any, url: str, secrets: Any, name: str, topic: str, body: bytes, more: Any) -> Outcome:
        sent.append(body)
        return answer(body)

    monkeypatch.setattr(delivery_worker, "post", post)
    return sent


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), KeyError("x"), UnicodeError("no")])
def test_a_message_that_breaks_its_delivery_is_a_dead_letter_and_later_ones_continue(
    monkeypatch: pytest.MonkeyPatch, pauses: list[int], error: Exception
) -> None:
    def answer(body: bytes) -> Outcome:
        if body == b"poison":
            raise error
        return Outcome(delivered=True)

    file, sent = Served(), posts(monkeypatch, answer)
    add(file, b"poison", b"behind")
    one = work(file, lambda one: one.delivered == 1)
    assert sent == [b"poison"] * WEBHOOK_ATTEMPTS_MAX + [b"behind"]
    assert (one.failed, one.dead_letters) == (WEBHOOK_ATTEMPTS_MAX, 1)
    assert pauses == list(range(1, WEBHOOK_ATTEMPTS_MAX))
    (letter,) = dead_letters.dead_letters(one.mailbox, 0, 10).dead_letters
    assert (letter.attempts, letter.body) == (WEBHOOK_ATTEMPTS_MAX, "poison")
    assert type(error).__name__ in letter.error


def test_attempts_ended_by_an_internal_error_are_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: bytes) -> Outcome:
        raise RecursionError

    file = Served()
    posts(monkeypatch, answer)
    add(file, b"poison")
    one = work(file, lambda one: one.failed == 1)
    assert [attempts for _, _, attempts, _ in dead_letters.waiting(one.mailbox, 0)] == [1]
    assert one.last_failure is not None
    assert one.last_failure.attempts == 1


def test_an_attempt_counts_though_the_disk_refuses_to_store_it(
    monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    file, sent = Served(), posts(monkeypatch, lambda body: Outcome(delivered=True))
    file.refused = lambda refusals: refusals < 4
    add(file, b"1", b"2")
    one = work(file, lambda one: one.delivered == 2)
    assert sent == [b"1"] * 5 + [b"2"]
    assert pauses == [1, 2, 3, 4]
    assert one.dead_letters == 0


def test_a_message_with_an_unreadable_row_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    file, sent = Served(), posts(monkeypatch, lambda body: Outcome(delivered=True))
    add(file, b"1", b"2")

    def load(mailbox: Mailbox, number: int, before: Any = dead_letters.load) -> Any:
        if number == 1:
            raise StorageError("gateway.db", "database disk image is malformed")
        return before(mailbox, number)

    monkeypatch.setattr(dead_letters, "load", load)
    one = work(file, lambda one: one.delivered == 1)
    assert sent == [b"2"]
    assert (one.failed, one.dead_letters) == (WEBHOOK_ATTEMPTS_MAX, 1)


def test_receivers_that_want_nothing_more_of_several_keys_at_once_end_the_webhook_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, flying, sent = Served(), asyncio.Barrier(2), 0

    async def post(*_: Any) -> Outcome:
        nonlocal sent
        sent += 1
        await flying.wait()
        return Outcome(ended=True, reason="status 410")

    monkeypatch.setattr(delivery_worker, "post", post)
    add(file, b"1", b"behind 1")
    add(file, b"2", b"behind 2", key=b"k")

    async def main() -> None:
        async with make_http_client() as http_client:
            one = DeliveryWorker(HOOK, Mailbox(file, "t"), http_client, Random(1))  # type: ignore[arg-type]
            async with asyncio.timeout(20):
                assert await one.run() == "the receiver answered 410"
            assert (sent, one.failed, one.dead_letters, one.waiting) == (2, 2, 2, 2)

    asyncio.run(main())


def test_a_taken_message_that_was_unreadable_at_first_is_delivered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, sent, reads = Served(), posts(monkeypatch, lambda body: Outcome(delivered=True)), 0
    nothing_more = file.hand_on

    async def hand_on(*arguments: Any) -> int:
        file.hand_on = nothing_more  # type: ignore[method-assign]
        add(file, b"1")
        return 1

    def waiting(mailbox: Mailbox, after: int, before: Any = dead_letters.waiting) -> Any:
        nonlocal reads
        reads += 1
        if file.hand_on == nothing_more and reads < 100:
            reads = 100
            raise StorageError("gateway.db", "disk I/O error")
        return before(mailbox, after)

    file.hand_on = hand_on  # type: ignore[method-assign]
    monkeypatch.setattr(dead_letters, "waiting", waiting)
    monkeypatch.setattr(delivery_worker, "TROUBLE_SECONDS", 0.0)
    work(file, lambda one: one.delivered == 1)
    assert sent == [b"1"]
