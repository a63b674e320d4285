"""Merging: two servers that both hold one topic become one holder, without a loss or a duplicate.

The rules are those of docs/explanation/merge.md, *Merging*, M10, M11, M12 and M18.

Guarantees:

* Each subscriber receives every record that either server acknowledged and owed to it, once. A publisher's records keep
  their order.
* No record is copied or renumbered. The given logs move in, closed, under their own IDs, and only ranges change.
* Positions handed out before stay valid. An unsubscription stays one. Duplicates of either side stay recognised.
* A copy restored from a backup takes nothing from a holder that knows more.

Method. A publisher's records in one log have no gaps below `last`, so counters alone show the records that both sides
hold of a publisher. A subscriber receives one side's records up to `last`. From the other side it is to receive only
records above that (`watermark`). Timestamps identify the records put before it subscribed (`since`). The merge takes
each subscriber's subscription with the higher number. The subscriber gets its own spans first, then the other side's
history restricted in this way, then all later records of the merged topic.

Limits:

* Timestamps of two servers compare within the bound on their clocks' difference. A subscriber may receive records from
  within that bound before its subscription (a record too many rather than a loss). A clock that was wrong by more than
  the bound, while the servers could not reach each other, breaks that and only that.
* The order between two publishers holds within one log, not across logs.
* If one side dropped history by its byte limit during the split, the subscribers that needed it get `lost`.
* A client that unsubscribed at a server that was then abandoned is still subscribed at the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from msgspec.structs import replace

from pubsub.server.topic.consumers import Consumer, Readers, Session, group_of
from pubsub.server.topic.group import order_of
from pubsub.server.topic.group_rows import GroupEmptied, GroupRow
from pubsub.server.topic.removal import LET_GO, NOTHING
from pubsub.server.topic.removal import merged as merged_removals
from pubsub.server.topic.settings import merged
from pubsub.server.topic.spans import ALWAYS, Span, cut
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic

Counters = Mapping[int, int]


class _Watermarks:
    """Assigns numbers to copies of `last`; each copy is stored once, however many spans refer to it."""

    def __init__(self, topic: Topic, next_watermark: int) -> None:
        self.next = next_watermark
        self._stored = topic.watermarks
        self._merged: dict[tuple[int, int], int] = {}
        self.made: list[int] = []

    def store(self, counters: Counters) -> int:
        """Store a copy and return its number; 0 if the copy is empty."""
        if not counters:
            return 0
        number, self.next = self.next, self.next + 1
        self._stored[number] = dict(counters)
        self.made.append(number)
        return number

    def merge(self, one: int, other: int) -> int:
        """Return the number of the copy with the larger counters of both."""
        if not one or not other or one == other:
            return one or other
        key = (min(one, other), max(one, other))
        if key not in self._merged:
            self._merged[key] = self.store(larger(self._stored[one], self._stored[other]))
        return self._merged[key]

    def view(self, history: Iterable[Span], watermark: int, since: int) -> tuple[Span, ...]:
        """Restrict a history for a subscriber that holds all records up to `watermark` and subscribed at `since`."""
        return tuple(
            replace(span, watermark=self.merge(span.watermark, watermark), since=max(span.since, since))
            for span in history
        )


def larger(one: Counters, other: Counters) -> dict[int, int]:
    merged = dict(one)
    for publisher, counter in other.items():
        if counter > merged.get(publisher, 0):
            merged[publisher] = counter
    return merged


def merge(topic: Topic, other: Topic, next_watermark: int) -> tuple[list[int], int]:
    """Merge `other`, which is frozen, into `topic`; its logs, watermarks and publishers have this store's numbers.

    Logs that `topic` holds or has merged are left out, with the spans into logs that it no longer holds. But logs that
    are `outdated` here are replaced by the other side's. So are subscriptions, unless one side is known to be newer.

    Args:
        next_watermark: the first free number of a stored copy of `last`.

    Returns:
        The numbers of the copies that were made or came along, and the next free one.
    """
    behind = outdated(topic, other)
    second = bool(behind) or is_elder(other, topic)
    topic.begin_order(_order(topic, other, second=second))
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
    its_groups = _newer_groups(topic, other, behind=bool(behind))
    for name in sorted(topic.subscriptions.keys() | other.subscriptions.keys()):
        mine, its = _both(topic, other, name, its_groups)
        if mine is not None and (its is None or _is_newer(mine, its, bool(behind))):
            subscription = mine
            rest = cut(mine.cursor.backlog, topic.open.id, end)
            rest += watermarks.view(foreign, ours, mine.cursor.since)
        else:
            assert its is not None
            subscription = its
            # A restored side may hold a log again that the other has merged. It stays in the spans that have it.
            rest = _without(cut(its.cursor.backlog, other.open.id, other.open.end), known - topic.logs.keys())
            rest += watermarks.view(_without(own, {span.log for span in rest}), theirs, its.cursor.since)
        subscription.consumer = _consumer(subscription, mine, its)
        subscription.cursor.backlog = (*rest, tail) if subscription.on else ()
        topic.subscriptions[name] = subscription
    _merge_groups(topic, other, its_groups, (own, foreign, tail), known - topic.logs.keys())
    # A restored copy's counters go beyond its records, so the watermarks must restrict its own history. The same holds
    # for a side that lacks what the other side has let go of (docs/explanation/merge.md, M18).
    left, right, counters = (foreign, own, theirs) if second else (own, foreign, ours)
    topic.history = (*left, *watermarks.view(right, counters, ALWAYS), tail)
    _take_over(topic, other, known)
    _suppose_handed_out(topic, before, grown=bool(foreign))
    drop_unused_watermarks(topic)
    return [number for number in watermarks.made if number in topic.watermarks], watermarks.next


def _newer_groups(topic: Topic, other: Topic, *, behind: bool) -> frozenset[str]:
    """Return the groups of which the merge keeps the other side's: those with the higher number (GR12 and GR13).

    Two tries of one request may have made a group at both sides. Members have worked at one of them at most.
    """

    def is_its(mine: GroupRow | None, its: GroupRow) -> bool:
        if mine is None:
            return True
        if mine.number != its.number or behind:
            return its.number >= mine.number
        return its.used and not mine.used

    rows = {name: group.row for name, group in topic.groups.items()}
    return frozenset(name for name, group in other.groups.items() if is_its(rows.get(name), group.row))


def _both(
    topic: Topic, other: Topic, name: str, its_groups: frozenset[str]
) -> tuple[Subscription | None, Subscription | None]:
    """Return the subscriptions with a key at both sides; of a part of a group, only the one that the merge keeps."""
    mine, its = topic.subscriptions.get(name), other.subscriptions.get(name)
    if group := group_of(name):
        return (None, its or _ended(mine)) if group in its_groups else (mine or _ended(its), None)
    return mine, its


def _ended(part: Subscription | None) -> Subscription:
    """Return what waits of a part that the chosen side's group does not have: nothing."""
    assert part is not None
    part.on, part.cursor.backlog = False, ()
    return part


def _merge_groups(
    topic: Topic,
    other: Topic,
    theirs: frozenset[str],
    spans: tuple[tuple[Span, ...], tuple[Span, ...], Span],
    gone: Iterable[str],
) -> None:
    """Take over the groups of the other side that the merge keeps, with claims, retries and copies (GR13, GR14).

    Args:
        theirs: these groups.
        spans: our own closed history, the other one, and the span of all later records.
        gone: logs that were used up here.
    """
    own, foreign, tail = spans
    for name in sorted(topic.groups.keys() | theirs):
        if name in theirs:
            group = other.groups[name]
            if name in topic.groups:
                topic.dirty.row(topic.name, GroupEmptied(topic.number, name))
            order = _without(cut(group.row.order, other.open.id, other.open.end), gone)
            order += _without(own, {span.log for span in order})
            topic.groups[name] = group
            group.touch()
        else:
            group = topic.groups[name]
            order = cut(group.row.order, topic.open.id, tail.low) + foreign
        if group.row.on:
            group.set(order=(*order_of(order), tail))
        topic.dirty.group(topic.name, name)


def _order(topic: Topic, other: Topic, *, second: bool) -> str:
    """Return the token of the merged history: that of the side which comes first, since its readers go on.

    Args:
        second: True if the history of `topic` comes after the other one.
    """
    if not second and (topic.logs.keys() != {topic.open.id} or topic.merged or topic.open.end > 1):
        return topic.history_token
    if (topic.merged | topic.logs.keys()).isdisjoint(span.log for span in other.history):
        return other.history_token
    # Some records of the other history stay at their place in this one.
    tokens = f"{topic.history_token}&{other.history_token}"
    return sha256(tokens.encode()).hexdigest()[:16]


def _suppose_handed_out(topic: Topic, before: Mapping[str, Subscription], *, grown: bool) -> None:
    """Count records from the other server as handed out, in a subscription that came from there or that grew."""
    for name, subscription in topic.subscriptions.items():
        if grown or subscription is not before.get(name):
            subscription.cursor.suppose_all_handed_out(topic.logs)


def _is_newer(mine: Subscription, its: Subscription, behind: bool) -> bool:
    """Return True if the merge keeps our own of two subscriptions of one name; it does if both are equally new."""
    if mine.number != its.number or behind:
        return mine.number > its.number
    # Two tries of one request made both subscriptions. A reader knows only one of them, and reads in its logs.
    return its.consumer == Readers() or mine.consumer != Readers()


def _take_over(topic: Topic, other: Topic, known: set[str]) -> None:
    """Merge all fields other than ranges; `known`: logs that `topic` held already."""
    settings = merged(topic.settings, other.settings)
    if settings != topic.settings:
        topic.configure(settings)
    removal = merged_removals(topic.removal, other.removal)
    topic.last = larger(topic.last, other.last)
    for log in other.logs.values():
        if log.id not in known:
            topic.logs[log.id] = log
            if log.id in other.compacted:
                topic.compacted = {**topic.compacted, log.id: other.compacted[log.id]}
            topic.waiting_bytes += log.total  # An upper bound, as for a topic that is loaded.
    for log_id in sorted(other.purged.keys() & topic.logs.keys()):
        topic.purge(log_id, other.purged[log_id])
    topic.merged |= (other.merged | other.logs.keys()) - topic.logs.keys()
    topic.ended |= other.ended - known
    if removal == LET_GO and any(log.low > 1 for log in topic.logs.values()):
        topic.removal = removal  # The low end of a held log shows it. Otherwise the store needs a row.
    elif removal != NOTHING:
        topic.remove(removal)
    topic.note_all()
    for publisher in other.last:
        topic.dirty.last(topic.name, publisher)


def is_elder(other: Topic, topic: Topic) -> bool:
    """Return True if the history of a merge begins with the other side's, because only that side let records go."""
    return other.removal.let_go and not topic.removal.let_go


def outdated(topic: Topic, other: Topic) -> frozenset[str]:
    """Return the logs of `topic` that belong to a restored copy, if `other` continued from the store's real last state.

    Topics move completely. A log may have ended here at an unknown end and be known completely there. Then all records
    of the copy are there, or were consumed there.
    """
    there = other.merged | other.logs.keys()
    if topic.ended & there <= other.ended:
        return frozenset()
    return frozenset((topic.merged | topic.logs.keys()) & there)


def _consumer(chosen: Subscription, mine: Subscription | None, its: Subscription | None) -> Consumer:
    """Return the later session of both; named readers keep their binding under the chosen number."""
    sessions = [one.consumer for one in (mine, its) if one is not None and isinstance(one.consumer, Session)]
    return max(sessions, key=lambda session: session.epoch, default=chosen.consumer)


def _forget_logs(topic: Topic, logs: frozenset[str]) -> None:
    for subscription in topic.subscriptions.values():
        subscription.cursor.backlog = _without(subscription.cursor.backlog, logs)
    topic.history = _without(topic.history, logs)
    topic.logs = {name: log for name, log in topic.logs.items() if name not in logs}
    topic.compacted = {name: parts for name, parts in topic.compacted.items() if name not in logs}
    topic.merged -= logs
    topic.ended -= logs
    topic.restored = tuple(name for name in topic.restored if name not in logs)


def _without(spans: Iterable[Span], logs: Iterable[str]) -> tuple[Span, ...]:
    known = frozenset(logs)
    return tuple(span for span in spans if span.log not in known)


def drop_unused_watermarks(topic: Topic) -> list[int]:
    """Forget the copies of `last` that no span refers to any more; return their numbers."""
    subscriptions: Iterable[Subscription] = topic.subscriptions.values()
    used = {span.watermark for span in topic.history} | {
        span.watermark for subscription in subscriptions for span in subscription.cursor.backlog
    }
    unused = [number for number in topic.watermarks if number not in used]
    for number in unused:
        del topic.watermarks[number]
    return unused
