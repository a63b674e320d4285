"""Decide, without sockets, disk and clock, how a client reacts to each call and each answer.

The shell (`session`) passes in calls, decoded answers and `now`, and then uses four results in this order: `due`,
`wants_sync`, `outgoing`, `deadline`. The changes in `due` must be committed before anything that follows from them is
sent.

A call's change is planned first (`Draft`, `Taking`, an intent), committed by the shell, and accepted here only then. So
memory never runs ahead of the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pubsub.client.core.chain import Chain
from pubsub.client.core.changes import Confirmed, RowUnchained
from pubsub.client.core.effects import Due, Outgoing
from pubsub.client.core.flights import Flight, Flights, answered_late
from pubsub.client.core.groups import Groups
from pubsub.client.core.intent import CONTINUED, SHORT
from pubsub.client.core.long_poll import WAIT_SECONDS_MAX
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.outbox import Outbox
from pubsub.client.core.put_message import put_message
from pubsub.client.core.refusing_proxies import RefusingProxies
from pubsub.client.core.retries import Retries
from pubsub.client.core.rights import ask_again, deny, refusal
from pubsub.client.core.subscription import Subscription, asleep
from pubsub.client.core.waiting import WaitingMessages
from pubsub.errors import DataLoss, DecodeError, PubsubError, StateCopied, Superseded
from pubsub.protocol import Get, Message, Outcome, Position, Status, format_position
from pubsub.protocol.names import FEWER, Start

SYNC_SECONDS: Final = 0.05
"""Longest time from taking messages to the fsync that allows their acknowledgement."""

TRANSMISSIONS_MAX: Final = 64
"""Number of latest transmissions of one put with accepted answers; an answer to an earlier one is of no use."""

ASKED_MAX: Final = 16
"""Number of latest transmissions of one intent with useful answers: the last one counts, the others show a slow
service.
"""

IDLE: Final = float("-inf")

_log: Final = logging.getLogger("pubsub.client")


@dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """The client's settings that the core uses; units as in `ClientSettings`. `database`: its ID; "": a file."""

    client: str
    path: str
    publisher: str
    proxies: int
    tries: int
    try_seconds: float
    window: int
    outbox_bytes_max: int
    prefetch_records: int
    prefetch_bytes: int
    database: str = ""


class ClientCore:
    """The decisions of one open client.

    Args:
        cuts: number of power cuts in the history of this state.
        load_taken: returns a topic's last taken counters by publisher.
        wall: returns seconds since 1970, for the dead letters.

    Attributes:
        due: changes to commit, oldest first.
        wants_sync: True if all commits so far are to be fsynced.
        flights: transmissions that may still be answered.
        groups: open batches that callers share.
        waiting: messages that were put aside until their next attempt.
        doors: proxies that refuse this client.
        sync_at: time by which the commits so far are fsynced; None: all are.
        copied: the error to raise, if an answer has shown that a copy of this state was used elsewhere.
        check_life: called before an answer counts as such a sign; raises StorageError if another process goes on.
    """

    def __init__(
        self,
        settings: CoreSettings,
        numbers: Numbers,
        cuts: int,
        load_taken: Callable[[str], dict[str, int]],
        wall: Callable[[], float],
    ) -> None:
        self.settings, self.numbers, self._load_taken, self.wall = settings, numbers, load_taken, wall
        self.publisher, self.proxy = settings.publisher, 0
        self.refusing, room = RefusingProxies(settings.proxies), (settings.window, settings.outbox_bytes_max)
        self.outbox = Outbox(numbers, cuts, self._retries, *room, settings.database)
        self.subscriptions, self.due = dict[str, Subscription](), list[Due]()
        self.wants_sync = False
        self.copied: StateCopied | None = None
        self.check_life: Callable[[], None] = _nothing
        self._awake, self._unsynced = dict[str, Subscription](), dict[str, Subscription]()
        self.sync_at: float | None = None
        self.flights, self.groups, self.waiting = Flights(), Groups(), WaitingMessages()

    def _retries(self) -> Retries:
        settings = self.settings
        return Retries(settings.proxies, settings.tries, settings.try_seconds, self.proxy, self.refusing)

    # State from the store

    def load_subscriptions(
        self, rows: Iterable[tuple[str, bool, bool, bool, int, str, Position | None, Any, int]]
    ) -> None:
        """Load subscriptions in the form of `Store.subscriptions`."""
        for topic, wanted, settled, fresh, number, log, position, tried, attempts in rows:
            sub = self.subscription(topic)
            sub.intent.load(wanted, settled, fresh, number)
            sub.fence.answered(log)
            sub.cursor.load(position, tried, attempts)  # Opening the store fsynced it.

    def load_starts(self, rows: Iterable[tuple[str, Start]]) -> None:
        """Load the start positions of fresh subscriptions in the form of `Store.starts`."""
        for topic, start in rows:
            self.subscription(topic).intent.start = start

    def load_losses(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Load the losses that the application has not learned of, in the form of `Store.untold`."""
        for topic, first, last, reason in rows:
            self.subscription(topic).losses.add(DataLoss(topic, first, last, reason))

    def subscription(self, topic: str) -> Subscription:
        """Return a topic's subscription, and make one that is off if there is none."""
        found = self.subscriptions.get(topic)
        if found is None:
            found = Subscription(self.settings.client, topic, self._retries(), self._load_taken)
            self.subscriptions[topic] = found
        return found

    # Calls

    def finish(self, topic: str, until: float) -> Chain:
        """Send the unfinished puts of a topic, in order, until `until`."""
        if self.refusing.closed:
            self.refusing.called = True
        return self.outbox.wake(topic, until, self.proxy)

    def settle(self, sub: Subscription, until: float) -> None:
        """Ask the service to settle an intent, until `until`."""
        ask_again(self.refusing, sub)
        if sub.deadline is None:
            sub.retries.renew(self.proxy)
        sub.intent.ask_until(until)
        self._awake[sub.topic] = sub

    def check(self, sub: Subscription, until: float) -> None:
        """Ask the service until `until` if it knows a settled subscription; `unchecked` is True until it answers."""
        ask_again(self.refusing, sub)
        if sub.deadline is None:
            sub.retries.renew(self.proxy)
        sub.intent.check_for(until)
        sub.deadline = None  # The answer to the request in flight may be older than the call.
        self._awake[sub.topic] = sub

    def want(self, sub: Subscription, until: float, now: float) -> None:
        """Ask for messages for a call that waits until `until`. The call must decrement `sub.waiting` at its end."""
        ask_again(self.refusing, sub)
        if not sub.wanted(now) and sub.deadline is None:
            sub.retries.renew(self.proxy)
        sub.until = max(sub.until, until) if sub.wanted(now) else until
        sub.waiting += 1
        if sub.intent.settled and sub.parked_beyond(until, now):
            sub.deadline = None  # The server may hold that GET for longer than this call waits, so send another one.
        self._awake[sub.topic] = sub

    def moved(self, sub: Subscription, now: float, *, fsynced: bool) -> None:
        """Record that a commit moved a subscription's position."""
        self._awake[sub.topic] = sub
        self._unsynced[sub.topic] = sub
        if fsynced:
            self.synced()
        elif self.sync_at is None:
            self.sync_at = now + SYNC_SECONDS

    def synced(self) -> None:
        """Record an fsync of all commits so far: they may be acknowledged, and held messages may be sent."""
        for topic, sub in self._unsynced.items():
            sub.synced()
            self._awake[topic] = sub
        self._unsynced = {topic: sub for topic, sub in self._unsynced.items() if sub.cursor.safe != sub.cursor.position}
        self.sync_at, self.wants_sync = None, False
        self.outbox.release()

    def acknowledge(self, now: float) -> list[Subscription]:
        """Acknowledge all safe positions for the last time; return the subscriptions with a responsive server."""
        out = []
        for sub in self._awake.values():
            sub.waiting = 0
            if sub.acknowledge_at() is not None and now - sub.answered_at < WAIT_SECONDS_MAX:
                sub.stop_prefetching()
                out.append(sub)
        return out

    def renewed(self, publisher: str, wanted: Iterable[Subscription]) -> None:
        """Continue as another publisher, and subscribe anew to the topics of `wanted`."""
        self.publisher, self.copied = publisher, None
        self.flights.forget(self.flights.of_puts())
        self.outbox.renewed()
        for sub in wanted:
            sub.intended(True, fresh=True)

    # Answers

    def receive(self, token: int, status: Status, now: float) -> None:
        """Handle the answer to the message sent with `token`; ignore an answer that is no longer expected."""
        flight = self.flights.completed(token)
        if flight is None:
            return
        target, row, generation, proxy, _, _ = flight
        if isinstance(target, Chain):
            if row is not None and token in row.tokens:
                row.tokens.remove(token)
            self._put_answered(target, status, flight, now)
        elif target.fence.admits(generation):
            self.flights.forget(target.tokens)
            if target.intent.settled:
                self._get_answered(target, status, proxy, now)
            else:
                self._intent_answered(target, status, proxy, now)
        elif token in target.tokens:
            target.tokens.remove(token)
            answered_late(target, flight, now)

    def _put_answered(self, chain: Chain, status: Status, flight: Flight, now: float) -> None:
        _, _, generation, proxy, train, _ = flight
        if status.last >= 0 and (evidence := self.outbox.evidence(chain, status.last)):
            self.check_life()
            self.copied = StateCopied(self.settings.client, self.settings.path, evidence)
            chain.until, chain.deadline = IDLE, None
            return
        # A refused train does not tell which row is at fault, or whether the server supports trains at all.
        ends = status.outcome is not Outcome.SUCCESS and not (train and status.outcome is Outcome.REFUSED)
        if ends and generation == chain.generation and self._put_ended(chain, status):
            return
        done = self.outbox.answered(chain, status, generation, proxy, now)
        for row in done:
            self.flights.forget(row.tokens)
        if done:
            self.proxy = proxy
            self.groups.answered(chain.topic)

    def _put_ended(self, chain: Chain, status: Status) -> bool:
        """Stop the sending of a chain, for now or in this log, if the answer demands that; return True in this case."""
        if status.outcome is Outcome.GONE:
            chain.trouble = "the log was given up"
            if (first := chain.unchain()) is not None:
                self.due.append(Due([RowUnchained(first.counter)], partial(chain.unchained, first)))
                return True
        elif status.outcome in {Outcome.REFUSED, Outcome.DENIED}:
            chain.fail(refusal(self.settings.client, "put", chain.topic, status))
            return True
        return False

    def _intent_answered(self, sub: Subscription, status: Status, proxy: int, now: float) -> None:
        if status.outcome is Outcome.SUCCESS:
            change = sub.confirm(status)
            self.proxy = proxy
            self.due.append(Due([change], partial(_settled, sub, change, status, proxy, now)))
        elif status.outcome is Outcome.SUPERSEDED:
            self._intent_superseded(sub, status)
        elif status.outcome in {Outcome.REFUSED, Outcome.DENIED, Outcome.GONE}:
            deny(sub, refusal(self.settings.client, "subscribe" if sub.intent.on else "unsubscribe", sub.topic, status))
        else:
            retry_later(sub, status, now)

    def _intent_superseded(self, sub: Subscription, status: Status) -> None:
        """Handle a higher number at the service: one call of the application may go above it, once."""
        if not sub.intent.insists:
            self.check_life()
            sub.failure = Superseded(self.settings.client, sub.topic)
            return
        sub.intent.insists.clear()
        try:
            self.numbers.reopen(max(status.number, status.epoch))
        except PubsubError as error:
            sub.failure = error
        else:
            sub.deadline = None

    def _get_answered(self, sub: Subscription, status: Status, proxy: int, now: float) -> None:
        outcome = status.outcome
        if outcome in {Outcome.SUCCESS, Outcome.EMPTY, Outcome.LOST}:
            try:
                sound = sub.received(status, now)
            except DecodeError:
                sound = False
            if sound:
                sub.retries.restart(proxy)
                self.proxy = proxy
            else:
                sub.trouble, sub.deadline = "an answer that is damaged", now + sub.retries.patience
        elif outcome is Outcome.SUPERSEDED:
            self.check_life()
            sub.fail(Superseded(self.settings.client, sub.topic, status.reason.replace("_", " ")))
        elif outcome is Outcome.BEHIND:
            self.check_life()
            known = format_position(status.position)
            evidence = f"{sub.topic} was received up to {known}, after {format_position(sub.cursor.safe)} here"
            sub.fail(StateCopied(self.settings.client, self.settings.path, evidence))
        elif outcome is Outcome.GONE:
            self.due.append(Due(*sub.place_lost(status, self.wall())))
        elif outcome is Outcome.REFUSED:
            sub.fail(refusal(self.settings.client, "get", sub.topic, status))
        elif outcome is Outcome.DENIED:
            deny(sub, refusal(self.settings.client, "get", sub.topic, status))
        else:
            retry_later(sub, status, now)

    # Sending

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return the messages to send now, and count them as sent."""
        out: list[Outgoing] = []
        if self.outbox.active and self.copied is None:
            self._send_puts(out, now)
        if self._awake:
            for topic, sub in list(self._awake.items()):
                self._send_for(sub, out, now)
                if asleep(sub, now):
                    del self._awake[topic]
        return out

    def _send_puts(self, out: list[Outgoing], now: float) -> None:
        for topic, chain in list(self.outbox.active.items()):
            for rows in chain.sendable(now):
                last, proxy = rows[-1], chain.retries.proxy
                message = put_message(self.settings.client, self.publisher, chain, rows)
                # The answer is expected until the last row is done, even if earlier rows are done before.
                token = self.flights.add(chain, last, chain.generation, proxy, train=len(rows) > 1)
                self.flights.keep(last.tokens, token, TRANSMISSIONS_MAX)
                out.append(Outgoing(token, proxy, message, rows))
            if chain.until == IDLE:
                del self.outbox.active[topic]

    def _send_for(self, sub: Subscription, out: list[Outgoing], now: float) -> None:
        message: Message
        if sub.failure is not None:
            sub.deadline = None
            return
        if not sub.intent.settled:
            if sub.deadline is not None or not sub.asking(now):
                return
            message = sub.ask(self.numbers.take(), self.numbers.epoch)
            sub.deadline = now + sub.retries.patience
        else:
            get = self._next_get(sub, now)
            if get is None:
                return
            message = get
        token = self.flights.add(sub, None, sub.fence.raise_for_request(), sub.retries.proxy, at=now)
        self.flights.keep(sub.tokens, token, 1 if sub.intent.settled else ASKED_MAX)
        out.append(Outgoing(token, sub.retries.proxy, message))

    def _next_get(self, sub: Subscription, now: float) -> Get | None:
        settings = self.settings
        late = sub.acknowledge_at()
        if sub.checking(now):
            wait = 0.0
            message = sub.get(self.numbers.epoch, 0, 0, 0.0)
        elif sub.hungry(now, settings.prefetch_records, settings.prefetch_bytes) or (
            sub.deadline is not None and late is not None and now >= late and not sub.retries.failed
        ):
            wait = sub.wait_seconds(now)
            message = sub.get(self.numbers.epoch, settings.prefetch_records, settings.prefetch_bytes, wait)
        elif sub.deadline is None and late is not None and now >= late:
            wait = 0.0
            message = sub.get(self.numbers.epoch, 0, 0, 0.0)
        else:
            return None
        sub.asked_for_records(now, wait, records=message.records_max > 0)
        return message

    # Time

    def tick(self, now: float) -> None:
        """Handle expired deadlines."""
        if self.refusing.called:
            self.refusing.retry(now)
        for chain in self.outbox.active.values():
            if chain.tick(now):
                self.proxy = chain.retries.proxy
        for sub in self._awake.values():
            if sub.deadline is not None and now >= sub.deadline:
                sub.retries.fail()
                sub.timed_out()
                self.proxy = sub.retries.proxy
        if self.sync_at is not None and now >= self.sync_at:
            self.wants_sync = True

    def deadline(self) -> float | None:
        """Return the next time at which `tick` or `outgoing` has work; None: not before the next call or answer."""
        times = [at for chain in self.outbox.active.values() if (at := chain.next_deadline()) is not None]
        for sub in self._awake.values():
            times += [at for at in (sub.deadline, sub.acknowledge_at()) if at is not None]
        if self.sync_at is not None:
            times.append(self.sync_at)
        return min(times, default=None)


def _nothing() -> None:
    """Stand in for the store of a session."""


def retry_later(sub: Subscription, status: Status, now: float) -> None:
    sub.trouble = status.reason.replace("_", " ") or status.outcome.value
    sub.deadline = now + sub.retries.patience
    if status.outcome is Outcome.MOVED:
        sub.fence.follow(status.log)
    elif status.outcome is Outcome.UNKNOWN:
        sub.fence.shun(status.log)


def _settled(sub: Subscription, change: Confirmed, status: Status, proxy: int, now: float) -> None:
    """Accept a confirmed intent after its commit."""
    sub.confirmed(change)
    sub.answered_at = now
    sub.retries.restart(proxy)
    if status.doubtful:
        _log.warning(CONTINUED, sub.client, sub.topic)
    if status.reason == FEWER:
        _log.warning(SHORT, sub.client, sub.topic, sub.intent.start)
