"""Subscriptions: clients' own, and named ones, which any process may read.

The rules are those of docs/explanation/get.md, *Subscribing*, G3.

The key of a named subscription differs from every client's ID. It is made while this server is the topic's sole owner,
and a repeated request finds it unchanged. So a start "from the newest on" means the same at each request. It has no
epoch: only an acknowledgement moves it. Retention and the backlog limit treat it like any other subscription. During a
split, two tries of one request may make it on both servers. Only one of the tries was answered, and that subscription
is the one in use.

A client's own subscription that is to be continued (*Continuing*) waits until this server is known to be the topic's
sole owner. That holds even if a subscription is here, because another server may have the right or a newer one. A
subscription that begins at a record not held here also waits, because another server may hold the record. The sole
owner answers `gone`, with the oldest position. Any other server answers `unknown`, so that the client tries another
holder (docs/explanation/replay.md, I7).

    SUBSCRIBE name   no subscription, or off under a lower number → made, once this server is the sole owner
                     on → success, nothing changes         off under this number or a higher one → superseded
    UNSUBSCRIBE name a higher number → off                 off by this number → success; otherwise superseded
    GET name max=0   acknowledged up to `last`, or behind   other max → refused
                     bound to another checkpoint → superseded

If two checkpoints acknowledged one subscription, each would miss the records that the other has read. So the first
acknowledgement with a checkpoint's token (`opening`) binds the subscription. After that no acknowledgement with another
token, or without one, counts, until one takes the subscription over (`number` is 1). A new subscription is bound to
none.

The rules are those of docs/explanation/continuing.md, C4; docs/explanation/spark-exchange.md, K1 and K2.
"""

from __future__ import annotations

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Get, Outcome, Subscribe, Unsubscribe
from pubsub.protocol.names import FEWER, LATEST, Start, is_service_topic
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.requests.admission import Admission
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.consumers import KEY, Readers
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.spans import ALWAYS
from pubsub.server.topic.start import NOT_HELD, cursor_at, oldest
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic


class Subscriptions:
    """The subscriptions of one server's topics.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        admission: checks limits.
    """

    def __init__(self, state: State, sole_owner: SoleOwner, admission: Admission) -> None:
        self._state, self._sole_owner, self._admission = state, sole_owner, admission

    def subscribe(self, origin: Origin, request: Subscribe | Unsubscribe, now: float, sole_owner: bool = False) -> None:
        """Process SUBSCRIBE and UNSUBSCRIBE of a client's own subscription.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        state = self._state
        if not request.number:
            state.replies.refuse(origin, "the number must not be 0")
            return
        topic = state.topics.get(request.topic)
        on = isinstance(request, Subscribe)
        continues = isinstance(request, Subscribe) and bool(request.continues)
        rejection = self._admission.subscription(topic, request.sender, on=on, continues=continues)
        if rejection:
            state.replies.answer(origin, Outcome.FULL, reason=rejection)
            return
        known = topic.subscriptions.get(request.sender) if topic else None
        if isinstance(request, Subscribe) and not sole_owner and self._needs_sole_owner(known, request):
            self._sole_owner.park_or_reject(origin, request)
            return
        start = request.start if isinstance(request, Subscribe) and self._is_new(known, request) else LATEST
        if isinstance(request, Subscribe) and request.pattern and isinstance(start, int):
            start = max(0, start - int(state.settings.skew_seconds * MICROSECONDS))
        if start != LATEST and is_service_topic(request.topic):
            state.replies.refuse(origin, "a service's topic can only be received from its end")
            return
        begin = self.begin(origin, request, start, now, sole_owner)
        if begin is None:
            return
        topic, cursor = begin
        outcome, subscription, changed = topic.subscribe(
            request.sender, request.number, request.epoch, on, cursor, continues=continues
        )
        if changed:
            state.undelivered.forget(topic.name, request.sender)
            state.long_polls.end_outdated(topic.name, request.sender, subscription)
            if start != LATEST:
                state.measure(topic)  # Records from before the subscription now count as its backlog.
        if changed and on:
            kept = continues and known is not None and known.on
            state.counters["subscriptions_continued" if kept else "subscriptions_made"] += 1
        self._answer(origin, topic, subscription, outcome)

    @staticmethod
    def _needs_sole_owner(known: Subscription | None, request: Subscribe) -> bool:
        """Return True if another holder of the topic might have the subscription, or the worker, of this request.

        Args:
            known: the subscription under the client's ID here.
        """
        if not (request.continues or is_service_topic(request.topic)):
            return False
        return known is None or (request.number > known.number and request.epoch >= known.epoch)

    @staticmethod
    def _is_new(known: Subscription | None, request: Subscribe) -> bool:
        """Return True if the request makes a subscription; False if it repeats or continues one, or is late."""
        if known is None:
            return True
        later = request.number > known.number and not known.outdates(request.number, request.epoch)
        return later and not (request.continues and known.on)

    def subscribe_named(
        self, origin: Origin, request: Subscribe | Unsubscribe, now: float, sole_owner: bool = False
    ) -> None:
        """Process SUBSCRIBE or UNSUBSCRIBE with a name.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        state = self._state
        if not request.number:
            state.replies.refuse(origin, "the number must not be 0")
            return
        key = KEY + request.name
        topic = state.topics.get(request.topic)
        subscription = topic.subscriptions.get(key) if topic else None
        on = isinstance(request, Subscribe)
        if (
            topic is not None
            and subscription is not None
            and ((on and subscription.on) or request.number <= subscription.number)
        ):
            same = on == subscription.on and (on or request.number == subscription.number)
            self._answer(origin, topic, subscription, Outcome.SUCCESS if same else Outcome.SUPERSEDED)
            return
        rejection = self._admission.subscription(topic, key, on=on)
        if rejection:
            state.replies.answer(origin, Outcome.FULL, reason=rejection)
        elif on and not sole_owner:
            self._sole_owner.park_or_reject(origin, request)
        else:
            self._settle(origin, request, now, sole_owner)

    def begin(
        self, origin: Origin, request: Subscribe | Unsubscribe, start: Start, now: float, sole_owner: bool
    ) -> tuple[Topic, Cursor] | None:
        """Return the topic, which is made if it does not exist, and a cursor at `start`.

        Returns:
            None if there is no such cursor here; the request is then answered, or waits.
        """
        state, topic = self._state, self._state.topics.get(request.topic)
        stamp, skew = state.stamps.reading(now), int(state.settings.skew_seconds * MICROSECONDS)
        if isinstance(start, int) and start > stamp + skew:
            state.replies.refuse(origin, "the start timestamp lies in the future")
            return None
        if topic is None and not isinstance(start, tuple):
            topic = state.create(request.topic)
        try:
            cursor = cursor_at(topic, start, stamp, skew, state.reader) if topic else None
            facts = oldest(topic, state.reader) if cursor is None and sole_owner else {}
        except StoreDamaged:
            assert topic is not None
            state.found_damaged(topic)
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
            return None
        if topic is not None and cursor is not None:
            return topic, cursor
        if sole_owner:
            state.replies.answer(origin, Outcome.GONE, reason=NOT_HELD, **facts)
        else:
            self._sole_owner.park_or_reject(origin, request, Outcome.UNKNOWN)
        return None

    def _settle(self, origin: Origin, request: Subscribe | Unsubscribe, now: float, sole_owner: bool) -> None:
        """Make a named subscription, or end it."""
        on = isinstance(request, Subscribe)
        begin = self.begin(
            origin, request, request.start if isinstance(request, Subscribe) else LATEST, now, sole_owner
        )
        if begin is None:
            return
        topic, cursor = begin
        if not on:
            cursor = Cursor(ALWAYS, cursor.acknowledged, ())
        subscription = Subscription(request.number, on, cursor, Readers())
        topic.enter(KEY + request.name, subscription)
        if isinstance(request, Subscribe) and request.start != LATEST:
            self._state.measure(topic)
        self._answer(origin, topic, subscription, Outcome.SUCCESS)

    def _answer(self, origin: Origin, topic: Topic, subscription: Subscription, outcome: Outcome) -> None:
        self._state.replies.answer(
            origin,
            outcome,
            position=subscription.cursor.acknowledged,
            number=subscription.number,
            epoch=subscription.epoch,
            log=topic.open.id,
            doubtful=int(subscription.cursor.doubtful),
            reason=FEWER if subscription.cursor.short else "",
        )

    def acknowledge(self, origin: Origin, get: Get) -> None:
        """Process GET with a name: it acknowledges, and hands out no records."""
        state = self._state
        if get.records_max:
            state.replies.refuse(origin, "GET cannot read a named subscription: use READ")
            return
        found = self._admission.named(origin, get.topic, get.name)
        if found is None:
            return
        topic, subscription = found
        assert subscription is not None
        cursor = subscription.cursor
        if not get.number and not subscription.admits(get.epoch):
            state.counters["acknowledgements_of_others"] += 1
            state.replies.answer(origin, Outcome.SUPERSEDED, position=cursor.acknowledged, log=topic.open.id)
            return
        if not topic.acknowledge(KEY + get.name, get.last):
            state.counters["positions_behind"] += 1
            state.replies.answer(origin, Outcome.BEHIND, position=cursor.acknowledged, log=topic.open.id)
            return
        if get.epoch or get.number:
            topic.bind(KEY + get.name, get.epoch)
        else:
            topic.use(KEY + get.name)
        state.replies.answer(origin, Outcome.EMPTY, position=cursor.acknowledged, log=topic.open.id)
