"""Mistakes that the model must catch, each put into the code that ships while a seed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from pubsub.http import handling, receiving, sending
from pubsub.http.core import answers
from pubsub.http.core.answers import Answer, Verdict
from pubsub.http.core.incoming import Incoming
from pubsub.http.core.outgoing import Kind, Outgoing
from pubsub.http.receiving import Receiving
from pubsub.http.sending import Draft, Sending
from pubsub.http.storage import inbox, outbox
from pubsub.http.storage.journal import Journal

Breakage = Callable[[ExitStack], None]


def _put(stack: ExitStack, target: Any, name: str, value: Any) -> None:
    stack.enter_context(patch.object(target, name, value))


def receipt_apart(stack: ExitStack) -> None:
    """The handler's effect is committed first, and the receipt then."""

    def commit(self: Any, name: Any, transaction: Any, returned: Any) -> list[Outgoing]:
        answer = handling.as_answer(returned, 1 << 20)
        transaction.commit(lambda _: None)
        with self._receiving.journal.transaction() as second:
            result = self._receiving.done(second, name, answer)
        return [result] if result is not None else []

    _put(stack, handling.Handling, "_commit", commit)


def result_apart(stack: ExitStack) -> None:
    """A job's result goes to the outbox in a transaction of its own, behind the receipt's."""
    later: list[tuple[Incoming, Answer]] = []
    true = Receiving.committed

    def keep(self: Receiving, transaction: Any, job: Incoming, answer: Answer, outcome: str) -> None:
        later.append((job, answer))

    def committed(self: Receiving, request: Incoming, queued: Any) -> None:
        true(self, request, queued)
        for job, answer in [one for one in later if one[0].key == request.key][-1:]:
            self._sending.submit(Draft(Kind.RESULT, job.response_url, {}, answer.body))
        later.clear()

    _put(stack, Receiving, "_result", keep)
    _put(stack, Receiving, "committed", committed)


def finished_is_forgotten(stack: ExitStack) -> None:
    """What a sender has finished is taken out, and that it was is not remembered."""
    _put(stack, inbox, "finished", lambda *_: False)


def finished_too_early(stack: ExitStack) -> None:
    """A sender counts the request that it is sending as finished."""
    true = Sending.headers

    def headers(self: Sending, request: Outgoing) -> dict[str, str]:
        found = true(self, request)
        if request.id in self._numbers:
            found["reliable-finished"] = str(self._number)
        return found

    def finish(transaction: Any, owner: str, key: str, number: int, now: float) -> int:
        ours = inbox.session_of(key)
        if ours is None or not number:
            return 0
        transaction.execute(
            "insert into pubsub_http_finished values (?, ?, ?, ?) on conflict (owner, session)"
            " do update set number = max(number, excluded.number)",
            (owner, ours[0], number, now),
        )
        return 0

    _put(stack, Sending, "headers", headers)
    _put(stack, inbox, "finish", finish)


def one_session_for_ever(stack: ExitStack) -> None:
    """A sender begins its numbers anew in the same session."""
    true = Sending.__init__

    def init(self: Sending, *arguments: Any) -> None:
        true(self, *arguments)
        self._session = "0" * 16

    _put(stack, Sending, "__init__", init)


def wall_clock(stack: ExitStack) -> None:
    """Times are the wall clock's."""
    _put(stack, Journal, "now", lambda self: self._clock.wall())


def uptime_across_boots(stack: ExitStack) -> None:
    """The uptime counts across boots, where it begins anew: time runs backwards, and much is due late or never."""

    def now(self: Journal) -> float:
        return self._clock.uptime()

    _put(stack, Journal, "now", now)


def sent_before_stored(stack: ExitStack) -> None:
    """A request is on its way before it is committed."""

    def submit(self: Sending, draft: Draft) -> Outgoing:
        request = self.compose(draft)
        self.stored(request)
        self._early[request.id] = request  # type: ignore[attr-defined]
        return request

    load = Sending.load

    def load_early(self: Sending, name: str) -> Outgoing | None:
        early = self.__dict__.setdefault("_early", {})
        return early.pop(name) if name in early else load(self, name)

    init = Sending.__init__

    def begin(self: Sending, *arguments: Any) -> None:
        init(self, *arguments)
        self._early = {}  # type: ignore[attr-defined]

    _put(stack, Sending, "__init__", begin)
    _put(stack, Sending, "submit", submit)
    _put(stack, Sending, "load", load_early)


def confirmed_is_removed(stack: ExitStack) -> None:
    """A confirmed response takes its tombstone with it."""

    def confirm(self: Receiving, owner: str, key: str) -> bool:
        with self.journal.transaction() as transaction:
            return inbox.remove(transaction, owner, key)

    _put(stack, Receiving, "confirm", confirm)


def running_is_final(stack: ExitStack) -> None:
    """A 409 ends a request."""
    true = answers.judge

    def judge(answer: Answer, *, job: bool) -> Verdict:
        return Verdict.REFUSED if answer.status == 409 else true(answer, job=job)

    _put(stack, sending, "judge", judge)


def acknowledged_before_stored(stack: ExitStack) -> None:
    """A message is acknowledged, and stored a little later."""
    true = Receiving.arrive

    def arrive(self: Receiving, arrival: Any) -> Any:
        held = self.__dict__.setdefault("_held", [])
        if arrival.kind is Kind.PUT or not held:
            held.append(arrival)
            if arrival.kind is not Kind.PUT and len(held) == 1:
                stored = receiving._stored(arrival, b"", self.journal.now())
                return receiving.Decision.ACKNOWLEDGE, stored
        while len(held) > 1:
            true(self, held.pop(0))
        return true(self, arrival)

    _put(stack, Receiving, "arrive", arrive)


def result_not_stored(stack: ExitStack) -> None:
    """The result of a job is acknowledged and kept in memory."""

    def result(self: Sending, transaction: Any, name: str, answer: Answer, *, failed: bool) -> Any:
        request = outbox.find(transaction, name)
        assert request is not None
        return request, sending.settle(request, sending.Event.RESULT, self.journal.now(), answer=answer)

    _put(stack, Sending, "result", result)


def response_made_anew(stack: ExitStack) -> None:
    """What is stored of a response is not what was answered first."""
    true = Receiving.done

    def done(self: Receiving, transaction: Any, name: Any, answer: Answer) -> Any:
        return true(self, transaction, name, replace(answer, body=answer.body + b"!"))

    _put(stack, Receiving, "done", done)


def effect_not_rolled_back(stack: ExitStack) -> None:
    """What a handler did before it raised is committed."""

    def undo(self: Any, transaction: Any, error: BaseException) -> None:
        if transaction.open and isinstance(error, ValueError):
            transaction.commit(lambda _: None)
        elif transaction.open:
            transaction.roll_back(error=error)

    _put(stack, handling.Handling, "_undo", undo)


def outcome_in_memory(stack: ExitStack) -> None:
    """A sender does not store what became of a request, and counts it as finished."""
    _put(stack, sending.outbox, "save", lambda *_: None)


def not_fsynced(stack: ExitStack) -> None:
    """Commits are not fsynced."""
    from pubsub.client.storage.store import Store

    true = Store.begin

    def begin(self: Store, *, fsync: bool) -> None:
        self.power_safe = False
        true(self, fsync=False)

    _put(stack, Store, "begin", begin)


BREAKAGES: Final[dict[str, Breakage]] = {
    function.__name__: function
    for function in (
        receipt_apart,
        result_apart,
        finished_is_forgotten,
        finished_too_early,
        one_session_for_ever,
        wall_clock,
        uptime_across_boots,
        sent_before_stored,
        confirmed_is_removed,
        running_is_final,
        acknowledged_before_stored,
        result_not_stored,
        response_made_anew,
        effect_not_rolled_back,
        outcome_in_memory,
        not_fsynced,
    )
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The code with one mistake in it."""
    with ExitStack() as stack:
        BREAKAGES[name](stack)
        yield
