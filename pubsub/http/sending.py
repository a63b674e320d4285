"""The sender without a network: which requests are stored, and the effect of each response.

The shell (`delivery`) asks for due requests, sends them, and reports the responses. A method that changes state returns
after the change is on disk. All methods run on one thread, except `add` and `withdrawn`, which a handler's thread calls
with its transaction open. The model in `tests/http/model.py` drives this very code.

The rule is docs/explanation/reliable-http.md, Q1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from pubsub.base.urls import masked
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, TooLarge
from pubsub.http.core.answers import Answer, Verdict, judge, reason
from pubsub.http.core.keys import CONFIRM, FINISHED, IDEMPOTENCY_KEY, RESPONSE_URL, fingerprint, make_id
from pubsub.http.core.limits import CONFIRM_TRIES_MAX, SWEEP_ROWS_MAX
from pubsub.http.core.outgoing import EVENTS, Event, Kind, Outgoing, State, put_off, settle
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import outbox
from pubsub.http.storage.journal import Journal
from pubsub.web.backoff import Backoff, retry_after
from pubsub.web.idempotency import write_key
from pubsub.web.schedule import Due, Schedule

METHODS: Final = {Kind.PUT: "PUT", Kind.SEND: "POST", Kind.JOB: "POST", Kind.RESULT: "POST"}


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked request of a caller.

    Attributes:
        key: of the caller, or "".
        local_url: of a job, the URL for its result; listens: this program starts a server there.
    """

    kind: Kind
    url: str
    headers: Mapping[str, str]
    body: bytes
    key: str = ""
    local_url: str = ""
    listens: bool = True


class Sending(Due[str]):
    """The outbox with its times.

    Args:
        journal: its file.
        settings: limits and times.
        random: source of IDs and jitter.

    Attributes:
        schedule: due times of requests.
    """

    def __init__(self, journal: Journal, settings: HttpSettings, random: Random) -> None:
        self.journal, self._settings, self._random = journal, settings, random
        self._backoff = Backoff.doubling(settings.backoff_seconds, settings.backoff_seconds_max)
        schedule: Schedule[str] = Schedule(settings.requests_at_once, settings.requests_per_host)
        super().__init__(schedule, journal.now, settings.backoff_seconds_max)
        self._session, self._number = f"{random.getrandbits(64):016x}", 0
        self._numbering = threading.Lock()
        self._unfinished: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        with journal.transaction() as transaction:
            self._count, self._bytes = outbox.measure(transaction)
            for name, _, url, due in outbox.active(transaction):
                self.schedule.set(name, due, _host(url))

    # A new request

    def compose(self, draft: Draft) -> Outgoing:
        """Return a request with its ID and times, not stored yet.

        Raises:
            TooLarge: its body is too large, or the outbox would be.
        """
        self._check_room(draft)
        now, name = self.journal.now(), draft.key
        if not name:
            name = self._new_id()
        headers = dict(draft.headers)
        response_url = ""
        if draft.kind is Kind.JOB:
            response_url = headers[RESPONSE_URL] = f"{draft.local_url.rstrip('/')}/{quote(name, safe='')}"
        method = METHODS[draft.kind]
        print_ = fingerprint(method, draft.url, response_url, draft.body)
        expires = now + self._settings.expiry_seconds
        listen = draft.local_url if draft.listens else ""
        return Outgoing(
            name, draft.kind, method, draft.url, headers, draft.body, print_, now, expires, now, listen=listen,
            changed=now,
        )  # fmt: skip

    def _check_room(self, draft: Draft) -> None:
        limits, size = self._settings, len(draft.body)
        if draft.kind is Kind.RESULT:  # Limited by the number of accepted jobs and by response_bytes_max.
            return
        if size > limits.body_bytes_max:
            raise TooLarge("body of a request", size, limits.body_bytes_max, "body_bytes_max")
        if self._count >= limits.outbox_requests_max:
            raise TooLarge(
                "number of open requests", self._count + 1, limits.outbox_requests_max, "outbox_requests_max"
            )
        if self._bytes + size > limits.outbox_bytes_max:
            raise TooLarge("outbox of open requests", self._bytes + size, limits.outbox_bytes_max, "outbox_bytes_max")

    def _new_id(self) -> str:
        """Return an ID; its number is unfinished from now on."""
        with self._numbering:
            self._number += 1
            name = make_id(self._session, self._number, f"{self._random.getrandbits(128):032x}")
            self._unfinished[self._number] = name
            self._numbers[name] = self._number
        return name

    def _finish(self, name: str) -> None:
        """Mark a request's number as finished: it is durably settled or was never stored, so it is not sent again."""
        with self._numbering:
            number = self._numbers.pop(name, 0)
            self._unfinished.pop(number, None)

    def submit(self, draft: Draft) -> Outgoing:
        """Store a request, so that it is sent. If the caller's key is known, return the stored request instead.

        Raises:
            CallerError: the key belongs to another request.
            TooLarge: the body is too large, or the outbox would be; nothing was stored.
            StorageError: the disk failed; nothing was stored, and nothing will be sent.
        """
        if draft.key:
            with self.journal.transaction() as transaction:
                found = outbox.find(transaction, draft.key)
            if found is not None:
                return self._same(found, draft)
        request = self.compose(draft)
        try:
            with self.journal.transaction() as transaction:
                outbox.add(transaction, request)
        except BaseException:
            self.withdrawn(request)
            raise
        self.stored(request)
        return request

    def _same(self, found: Outgoing, draft: Draft) -> Outgoing:
        response_url = found.headers.get(RESPONSE_URL, "")
        method = METHODS[draft.kind]
        if found.kind is draft.kind and found.print == fingerprint(method, draft.url, response_url, draft.body):
            return found
        raise CallerError(f"key {draft.key} belongs to another request: {found.method} {masked(found.url)}")

    def stored(self, request: Outgoing) -> None:
        """Schedule a committed request."""
        self._count += 1
        self._bytes += len(request.body)
        self.schedule.set(request.id, request.due, _host(request.url))

    def add(self, transaction: Transaction, draft: Draft) -> Outgoing:
        """Store a request in an open transaction. After its commit the caller must call `stored`.

        Raises:
            As `submit`.
        """
        request = self.compose(draft)
        try:
            outbox.add(transaction, request)
        except BaseException:
            self.withdrawn(request)
            raise
        return request

    def withdrawn(self, request: Outgoing) -> None:
        """Undo an `add` after its transaction was rolled back."""
        self._finish(request.id)

    # A try

    def load(self, name: str) -> Outgoing | None:
        """Return the request to try now, None if there is nothing to do. An expired request is settled first."""
        with self.journal.transaction() as transaction:
            request = outbox.find(transaction, name)
            if request is None:
                return None
            now = self.journal.now()
            if not request.over and now >= request.expires:
                expired = settle(request, Event.EXPIRED, now, problem=request.problem)
                outbox.save(transaction, expired)
            else:
                expired = None
        if expired is not None:
            self._settled(request, expired)
            return expired
        return request if request.state is State.OPEN or request.confirm else None

    def headers(self, request: Outgoing) -> dict[str, str]:
        """Return the header fields of a try, without `authorization`."""
        headers = {"content-type": "application/octet-stream", **request.headers}
        headers[IDEMPOTENCY_KEY] = write_key(request.id)
        with self._numbering:
            # Numbers are assigned in order, so the first in the dict is the lowest.
            ours = request.id in self._numbers
            finished = next(iter(self._unfinished)) - 1 if ours else 0
        if finished:
            headers[FINISHED] = str(finished)
        return headers

    def answered(self, name: str, answer: Answer) -> Outgoing | None:
        """Store the response of a try, and return the request's new state, None if it was forgotten meanwhile."""

        def after(request: Outgoing, now: float) -> Outgoing:
            verdict = judge(answer, job=request.kind is Kind.JOB)
            said = f"{answer.status}: {reason(answer)}".rstrip(": ")
            if verdict is Verdict.AGAIN:
                asked = retry_after(answer.headers.get("retry-after", ""), answer.headers.get("date", ""))
                return put_off(request, now, self._backoff, self._random.random(), asked, said)
            confirm = _confirmation(request.url, answer) if verdict is Verdict.ANSWERED else ""
            problem = said if verdict is Verdict.REFUSED else ""
            return settle(request, EVENTS[verdict], now, answer=answer, problem=problem, confirm=confirm)

        return self._change(name, after)

    def failed(self, name: str, problem: str) -> Outgoing | None:
        """Store a try without a response; returns as `answered`."""
        return self._change(
            name, lambda request, now: put_off(request, now, self._backoff, self._random.random(), problem=problem)
        )

    def refused(self, name: str, problem: str) -> Outgoing | None:
        """Settle a request that can never succeed, such as with a too large response; returns as `answered`."""
        return self._change(name, lambda request, now: settle(request, Event.REFUSED, now, problem=problem))

    def _change(self, name: str, change: Callable[[Outgoing, float], Outgoing]) -> Outgoing | None:
        with self.journal.transaction() as transaction:
            request = outbox.find(transaction, name)
            if request is None:
                return None
            after = change(request, self.journal.now())
            if after is not request:
                outbox.save(transaction, after)
        self._settled(request, after)
        return after

    def confirmed(self, name: str, *, success: bool) -> None:
        """Store the result of a DELETE of a confirmation URL."""
        with self.journal.transaction() as transaction:
            request = outbox.find(transaction, name)
            if request is None or not request.confirm:
                return
            attempts = request.attempts + 1
            if success or attempts >= CONFIRM_TRIES_MAX:
                after = replace(request, confirm="", attempts=0)
            else:
                open_ = replace(request, state=State.OPEN, expires=float("inf"))
                later = put_off(open_, self.journal.now(), self._backoff, self._random.random())
                after = replace(request, attempts=attempts, due=later.due)
            outbox.save(transaction, after)
        if after.confirm:
            self.schedule.set(name, after.due, _host(after.url))

    # The result of a job

    def known_job(self, transaction: Transaction, name: str) -> bool:
        request = outbox.find(transaction, name)
        return request is not None and request.kind is Kind.JOB

    def result(self, transaction: Transaction, name: str, answer: Answer, *, failed: bool) -> tuple[Outgoing, Outgoing]:
        """Store a job's result, and return the job before and after. After the commit call `settled`."""
        request = outbox.find(transaction, name)
        assert request is not None
        event = Event.FAILED if failed else Event.RESULT
        after = settle(request, event, self.journal.now(), answer=answer, problem=reason(answer) if failed else "")
        if after is not request:
            outbox.save(transaction, after)
        return request, after

    # Lookup and removal

    def find(self, name: str) -> Outgoing | None:
        with self.journal.transaction() as transaction:
            return outbox.find(transaction, name)

    def forget(self, name: str) -> bool:
        """Remove a request, so that it is not sent again. Return whether there was one."""
        with self.journal.transaction() as transaction:
            request = outbox.find(transaction, name)
            outbox.remove(transaction, name)
        if request is None:
            return False
        self.schedule.drop(name)
        if not request.over:
            self._over(request)
        return True

    def sweep(self) -> float:
        """Remove expired tombstones, and return the seconds until the next one expires."""
        self.journal.save_time()
        age = self._settings.tombstone_seconds
        removed = SWEEP_ROWS_MAX
        while removed == SWEEP_ROWS_MAX:
            with self.journal.transaction() as transaction:
                removed = outbox.sweep(transaction, self.journal.now() - age)
                oldest = outbox.next_tombstone(transaction)
        return float("inf") if oldest is None else max(0.0, oldest + age - self.journal.now())

    def settled(self, before: Outgoing, after: Outgoing) -> None:
        """Update the schedule after the commit of a `result`."""
        self._settled(before, after)

    def _settled(self, before: Outgoing, after: Outgoing) -> None:
        if after.over and not before.over:
            self._over(before)
        elif after.state is State.ACCEPTED and before.state is State.OPEN:
            self._bytes -= len(before.body)
            self._finish(before.id)
        if not after.over or after.confirm:
            self.schedule.set(after.id, after.due, _host(after.url))
        else:
            self.schedule.drop(after.id)

    def _over(self, before: Outgoing) -> None:
        self._count -= 1
        self._bytes -= len(before.body)
        self._finish(before.id)


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _confirmation(url: str, answer: Answer) -> str:
    """Return the confirmation URL of a response, "" if it has none or one of another origin."""
    named = answer.headers.get(CONFIRM, "")
    if not named:
        return ""
    try:
        joined = urljoin(url, named)
        there, here = urlsplit(joined), urlsplit(url)
    except ValueError:
        return ""
    return joined if (there.scheme, there.netloc) == (here.scheme, here.netloc) else ""
