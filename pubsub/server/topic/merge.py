"""Merging: two servers that came to hold one topic become one, without a loss or a duplicate.

The rules are those of docs/architecture.md, *Merging*.

What is guaranteed. Every record that either server acknowledged reaches every subscriber it was due to, once, and a
publisher's records keep their order. Nothing is copied or renumbered: the given logs move in, closed, under their own
IDs, and only ranges change. Positions handed out before stay valid, an unsubscription stays one, a duplicate of either
side stays recognised. A copy that was restored from a backup takes nothing from a holder that knows better.

How. A publisher's records in one log have no holes below `last`, so what both sides hold of a publisher is known by
counter alone: a subscriber that has received, or will receive, one side's records up to `last` is to receive of the
other side only what lies above (`watermark`). Records put before it subscribed are told by stamp (`since`). So each
subscriber, by the subscription with the higher number, gets its own spans first, then the other side's history so
restricted, then what the merged topic takes from now on.

Where the edges are. Stamps of two servers compare within the bound on their clocks' difference: records within that
bound before a subscription may arrive although they are a little older (early rather than lost). A clock wrong by more
than the bound while the servers could not hear each other breaks that, and only that. Order between two publishers
holds within one log, not across. History that one side dropped by its byte limit while they were apart is answered
`lost` to those it concerns. A client that unsubscribed at a server which was then given up is still subscribed at the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from pubsub.server.topic.consumers import Consumer, Readers, Session
from pubsub.server.topic.spans import ALWAYS, Span, cut
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic

Counters = Mapping[int, int]


class _Watermarks:
    """Gives numbers to copies of `last`, each stored once however many spans refer to it."""

    def __init__(self, topic: Topic, next_watermark: int) -> None:
        self.next = next_watermark
        self._stored = topic.watermarks
        self._merged: dict[tuple[int, int], int] = {}
        self.made: list[int] = []

    def store(self, counters: Counters) -> int:
        """The number of a copy; 0 where it is empty."""
        if not counters:
            return 0
        number, self.next = self.next, self.next + 1
        self._stored[number] = dict(counters)
        self.made.append(number)
        return number

    def merge(self, one: int, other: int) -> int:
        """The number of the copy that has the larger counter of both."""
        if not one or not other or one == other:
            return one or other
        key = (min(one, other), max(one, other))
        if key not in self._merged:
            self._merged[key] = self.store(larger(self._stored[one], self._stored[other]))
        return self._merged[key]

    def view(self, history: Iterable[Span], watermark: int, since: int) -> tuple[Span, ...]:
        """A history as seen by who holds all up to `watermark` and subscribed at `since`."""
        return tuple(
            replace(span, watermark=self.merge(span.watermark, watermark), since=max(span.since, since))
            for span in history
        )


def larger(one: Counters, other: Counters) -> dict[int, int]:
    """The larger counter of each publisher."""
    merged = dict(one)
    for publisher, counter in other.items():
        if counter > merged.get(publisher, 0):
            merged[publisher] = counter
    return merged


def merge(topic: Topic, other: Topic, next_watermark: int) -> tuple[list[int], int]:
    """Merge `other`, which is frozen, into `topic`; its logs, watermarks and publishers have this store's numbers.

    Logs that `topic` holds, or held, are left out, with the spans into those that it holds no more. But what is
    `outdated` here comes from the other side, and so do subscriptions that neither side knows to be newer.

    Args:
        next_watermark: the first free number of a stored copy of `last`.

    Returns:
        The numbers of the copies that were made or came along, and the next free one.
    """
    behind = outdated(topic, other)
    _forget_logs(topic, behind)
    known = topic.merged | topic.logs.keys()
    topic.watermarks |= other.watermarks
    watermarks = _Watermarks(topic, next_watermark)
    watermarks.made += other.watermarks
    end = topic.open.end
    ours, theirs = watermarks.store(topic.last), watermarks.store(other.last)
    own = cut(topic.history, topic.open.id, end)
    foreign = _without(cut(other.history, other.open.id, other.open.end), known)
    tail, before = Span(topic.open.id, end), dict(topic.subscriptions)
    for name in sorted(topic.subscriptions.keys() | other.subscriptions.keys()):
        mine, its = topic.subscriptions.get(name), other.subscriptions.get(name)
        if mine is not None and (its is None or _is_newer(mine, its, bool(behind))):
            subscription = mine
            rest = cut(mine.cursor.backlog, topic.open.id, end)
            rest += watermarks.view(foreign, ours, mine.cursor.since)
        else:
            assert its is not None
            subscription = its
            # A log may be on both sides, where one was restored and holds again what the other had merged. Such a log
            # stays due to a subscriber where it was due.
            rest = _without(cut(its.cursor.backlog, other.open.id, other.open.end), known - topic.logs.keys())
            rest += watermarks.view(_without(own, {span.log for span in rest}), theirs, its.cursor.since)
        subscription.consumer = _consumer(subscription, mine, its)
        subscription.cursor.backlog = (*rest, tail) if subscription.on else ()
        topic.subscriptions[name] = subscription
    # A restored copy's counters go beyond its records, so its history is the one that watermarks restrict.
    topic.history = (
        (*foreign, *watermarks.view(own, theirs, ALWAYS), tail)
        if behind
        else (*own, *watermarks.view(foreign, ours, ALWAYS), tail)
    )
    _take_over(topic, other, known)
    _suppose_handed_out(topic, before, grown=bool(foreign))
    drop_unused_watermarks(topic)
    return [number for number in watermarks.made if number in topic.watermarks], watermarks.next


def _suppose_handed_out(topic: Topic, before: Mapping[str, Subscription], *, grown: bool) -> None:
    """The other server may have handed out what came from there, with a subscription or to one that grew."""
    for name, subscription in topic.subscriptions.items():
        if grown or subscription is not before.get(name):
            topic.suppose_all_handed_out(subscription.cursor)


def _is_newer(mine: Subscription, its: Subscription, behind: bool) -> bool:
    """Whether our own of two subscriptions of one name goes on, which it does where they are as new."""
    if mine.number != its.number or behind:
        return mine.number > its.number
    # Two tries of one request made both. A reader has been told of one only, and stands in that one's logs.
    return its.consumer == Readers() or mine.consumer != Readers()


def _take_over(topic: Topic, other: Topic, known: set[str]) -> None:
    """What is not ranges; `known`: logs that `topic` held already."""
    topic.last = larger(topic.last, other.last)
    for log in other.logs.values():
        if log.id not in known:
            topic.logs[log.id] = log
            topic.waiting_bytes += log.total  # At most, as for a topic that is loaded.
    topic.merged |= (other.merged | other.logs.keys()) - topic.logs.keys()
    topic.ended |= other.ended - known
    topic.note_all()
    for publisher in other.last:
        topic.noted.last(topic.name, publisher)


def outdated(topic: Topic, other: Topic) -> frozenset[str]:
    """The logs of `topic` that are those of a restored copy, while `other` went on with the store's true descendants.

    Topics move as a whole, so a log that ended here because nobody knew its end, and is known in full there, shows that
    all of the copy is there, or was consumed there.
    """
    there = other.merged | other.logs.keys()
    if topic.ended & there <= other.ended:
        return frozenset()
    return frozenset((topic.merged | topic.logs.keys()) & there)


def _consumer(chosen: Subscription, mine: Subscription | None, its: Subscription | None) -> Consumer:
    """The later session of both; named readers keep what they are bound to under the chosen number."""
    sessions = [one.consumer for one in (mine, its) if one is not None and isinstance(one.consumer, Session)]
    return max(sessions, key=lambda session: session.epoch, default=chosen.consumer)


def _forget_logs(topic: Topic, logs: frozenset[str]) -> None:
    for subscription in topic.subscriptions.values():
        subscription.cursor.backlog = _without(subscription.cursor.backlog, logs)
    topic.history = _without(topic.history, logs)
    topic.logs = {name: log for name, log in topic.logs.items() if name not in logs}
    topic.merged -= logs
    topic.ended -= logs
    topic.restored = tuple(name for name in topic.restored if name not in logs)


def _without(spans: Iterable[Span], logs: Iterable[str]) -> tuple[Span, ...]:
    known = frozenset(logs)
    return tuple(span for span in spans if span.log not in known)


def drop_unused_watermarks(topic: Topic) -> list[int]:
    """Forget the copies of `last` that no span refers to any more; their numbers."""
    subscriptions: Iterable[Subscription] = topic.subscriptions.values()
    used = {span.watermark for span in topic.history} | {
        span.watermark for subscription in subscriptions for span in subscription.cursor.backlog
    }
    unused = [number for number in topic.watermarks if number not in used]
    for number in unused:
        del topic.watermarks[number]
    return unused
