"""The receiver without a network: which requests are stored, when handlers are called, which responses are sent.

The shells (`receiver`, `handling`) pass in requests and call handlers. A method that changes state returns after the
change is on disk. All methods run on one thread, except `done`, which a handler's thread calls with its transaction
open. The model in `tests/http/model.py` drives this very code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError
from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.incoming import Decision, Incoming, Standing, acknowledgement, decide, worn_out
from pubsub.http.core.keys import OUTCOME, fingerprint
from pubsub.http.core.limits import SWEEP_ROWS_MAX
from pubsub.http.core.outgoing import Kind, Outgoing
from pubsub.http.sending import Draft, Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import inbox
from pubsub.http.storage.journal import Journal
from pubsub.web.backoff import Backoff
from pubsub.web.schedule import Due, Schedule

FULL_SECONDS: Final = 5
"""`Retry-After` of a response if the inbox is full."""

RUNNING_SECONDS: Final = 1
"""`Retry-After` of a response while the handler runs."""

Name = tuple[str, str]
"""Owner and key."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A complete request that arrives.

    Attributes:
        owner, key, kind, method, path, query, headers, body, response_url: as of `Incoming`.
        finished: number up to which the sender's requests are finished.
    """

    owner: str
    key: str
    kind: Kind
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    response_url: str = ""
    finished: int = 0


class Receiving(Due[Name]):
    """The inbox with its times.

    Args:
        journal: its file.
        settings: limits and times.
        random: source of jitter.
        sending: the outbox of the same journal, for the results of jobs.

    Attributes:
        schedule: due times of handlers.
    """

    def __init__(self, journal: Journal, settings: HttpSettings, random: Random, sending: Sending) -> None:
        self.journal, self._settings, self._random, self._sending = journal, settings, random, sending
        self._backoff = Backoff.doubling(settings.backoff_seconds, settings.backoff_seconds_max)
        schedule: Schedule[Name] = Schedule(settings.handlers_at_once, settings.handlers_at_once)
        super().__init__(schedule, journal.now, settings.backoff_seconds_max)
        with journal.transaction() as transaction:
            self._count, self._bytes = inbox.measure(transaction)
            self._tombstones = inbox.tombstones(transaction)
            for owner, key, due in inbox.waiting(transaction):
                self.schedule.set((owner, key), due)

    # A request

    def arrive(self, arrival: Arrival) -> tuple[Decision, Incoming | None]:
        """Decide on a request, store it if it is new, and return the decision and the stored request.

        Raises:
            StorageError: the disk failed; nothing was stored.
        """
        print_ = _print(arrival)
        name = (arrival.owner, arrival.key)
        with self.journal.transaction() as transaction:
            now = self.journal.now()
            removed = inbox.finish(transaction, *name, arrival.finished, now)
            found = inbox.find(transaction, *name)
            forgotten = found is None and inbox.finished(transaction, *name)
            decision = decide(
                found, print_, running=name in self.schedule.busy, forgotten=forgotten, room=self._room(arrival)
            )
            if decision is Decision.STORE:
                found = _stored(arrival, print_, now)
                inbox.add(transaction, found)
        self._tombstones -= removed
        if decision is Decision.STORE:
            self._count += 1
            self._bytes += len(arrival.body)
        if decision in {Decision.STORE, Decision.HANDLE}:
            self.schedule.set(name, now)
        return decision, found

    def _room(self, arrival: Arrival) -> bool:
        limits = self._settings
        return (
            self._count < limits.inbox_requests_max
            and self._bytes + len(arrival.body) <= limits.inbox_bytes_max
            and self._count + self._tombstones < limits.tombstones_max
        )

    def find(self, owner: str, key: str) -> Incoming | None:
        with self.journal.transaction() as transaction:
            return inbox.find(transaction, owner, key)

    def confirm(self, owner: str, key: str) -> bool:
        """Drop the stored response, because the sender has it. Return whether the request is known.

        An unhandled request has no response, and stays as it is.
        """
        with self.journal.transaction() as transaction:
            found = inbox.find(transaction, owner, key)
            if found is None:
                return inbox.finished(transaction, owner, key)
            if found.standing is Standing.DONE:
                inbox.save(transaction, replace(found, standing=Standing.CONFIRMED, answer=None))
        return True

    # Its handler

    def done(self, transaction: Transaction, name: Name, answer: Answer) -> Outgoing | None:
        """Write the receipt into a handler's transaction. Return a job's result, which is sent after the commit.

        Raises:
            CallerError: the request was forgotten meanwhile.
        """
        found = inbox.find(transaction, *name)
        if found is None or found.standing is not Standing.RECEIVED:
            raise CallerError(f"request {name[1]} was forgotten while its handler ran; the transaction is rolled back")
        receipt = answer if found.kind is Kind.PUT else acknowledgement(found.kind)
        after = replace(found, standing=Standing.DONE, answer=receipt, body=b"", changed=self.journal.now(), problem="")
        inbox.save(transaction, after)
        return self._result(transaction, found, answer, "done") if found.kind is Kind.JOB else None

    def committed(self, request: Incoming, queued: Sequence[Outgoing]) -> None:
        """Count a committed request of `done`, and schedule the requests that its handler sends."""
        self._count -= 1
        self._bytes -= len(request.body)
        self._tombstones += 1
        for one in queued:
            self._sending.stored(one)

    def failed(self, name: Name, error: str, *, counts: bool = True) -> Incoming | None:
        """Store the failure of a handler, and return the request's new state.

        Args:
            name: of the request; error: its text; counts: False if the disk was at fault.
        """
        results: list[Outgoing] = []
        try:
            found, after = self._failed(name, error, counts, results)
        except BaseException:  # A number left unfinished would keep the tombstones of all later ones.
            for one in results:
                self._sending.withdrawn(one)
            raise
        if found is None or after is None:
            return found
        if after.standing is Standing.FAILED:
            self.committed(found, results)
        else:
            self.schedule.set(name, after.due)
        return after

    def _failed(
        self, name: Name, error: str, counts: bool, results: list[Outgoing]
    ) -> tuple[Incoming | None, Incoming | None]:
        """Return the request before, and after if it changed; append a job's result to `results`."""
        with self.journal.transaction() as transaction:
            found = inbox.find(transaction, *name)
            if found is None or found.standing is not Standing.RECEIVED:
                return found, None
            limits, now = self._settings, self.journal.now()
            attempts = found.attempts + counts
            if worn_out(attempts, limits.handler_attempts):
                answer = problem(
                    501, "the handler failed too often", f"it is not called again after {attempts} attempts"
                )
                after = replace(
                    found, standing=Standing.FAILED, answer=answer, attempts=attempts, changed=now, problem=error
                )
                if found.kind is Kind.JOB:
                    results.append(self._result(transaction, found, answer, "failed"))
            else:
                wait = self._backoff.seconds(max(1, attempts), self._random.random())
                after = replace(found, attempts=attempts, due=now + wait, problem=error, changed=now)
            inbox.save(transaction, after)
        return found, after

    def _result(self, transaction: Transaction, job: Incoming, answer: Answer, outcome: str) -> Outgoing:
        kept = {name: value for name, value in answer.headers.items() if name == "content-type"}
        draft = Draft(Kind.RESULT, job.response_url, {**kept, OUTCOME: outcome}, answer.body)
        return self._sending.add(transaction, draft)

    # Upkeep

    def again(self, name: Name) -> bool:
        """Schedule a failed handler again, with all its attempts. Return whether there is such a request."""
        with self.journal.transaction() as transaction:
            found = inbox.find(transaction, *name)
            if found is None or found.standing is not Standing.FAILED or found.kind is Kind.JOB:
                return False
            now = self.journal.now()
            inbox.save(
                transaction, replace(found, standing=Standing.RECEIVED, attempts=0, answer=None, due=now, changed=now)
            )
        self._count += 1
        self._bytes += len(found.body)
        self._tombstones -= 1
        self.schedule.set(name, now)
        return True

    def sweep(self) -> float:
        """Remove expired tombstones, and return the seconds until the next one expires."""
        age = self._settings.tombstone_seconds
        removed = SWEEP_ROWS_MAX
        while removed == SWEEP_ROWS_MAX:
            with self.journal.transaction() as transaction:
                removed = inbox.sweep(transaction, self.journal.now() - age)
                oldest = inbox.next_tombstone(transaction)
            self._tombstones -= removed
        return float("inf") if oldest is None else max(0.0, oldest + age - self.journal.now())


def reply(decision: Decision, found: Incoming | None) -> Answer | None:
    """Return the response, None if the handler's return value will be the response."""
    match decision:
        case Decision.STORE | Decision.HANDLE | Decision.ACKNOWLEDGE:
            assert found is not None
            return None if found.kind is Kind.PUT else acknowledgement(found.kind)
        case Decision.REPEAT:
            assert found is not None
            return found.answer
        case Decision.RUNNING:
            return problem(409, "the request with this Idempotency-Key is still being handled", "", RUNNING_SECONDS)
        case Decision.MISMATCH:
            return problem(422, "this Idempotency-Key belongs to another request")
        case Decision.CONFIRMED:
            return problem(410, "the response was confirmed by the sender and is no longer stored")
        case Decision.FORGOTTEN:
            return problem(410, "the sender has reported this request as finished, so it is not handled again")
        case Decision.FULL:
            return problem(503, "the inbox is full", "", FULL_SECONDS)


def _print(arrival: Arrival) -> bytes:
    target = arrival.path + ("?" + arrival.query if arrival.query else "")
    return fingerprint(arrival.method, target, arrival.response_url, arrival.body)


def _stored(arrival: Arrival, print_: bytes, now: float) -> Incoming:
    return Incoming(
        arrival.owner, arrival.key, arrival.kind, arrival.method, arrival.path, arrival.query, arrival.headers,
        arrival.body, print_, now, arrival.response_url, due=now, changed=now,
    )  # fmt: skip
