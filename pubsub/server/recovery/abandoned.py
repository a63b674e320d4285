"""Abandoned holders: how clients with history there continue here.

The rules are those of docs/explanation/merge.md, *Giving up*, M16 and M17.

`pubsub topic abandon` declares the lost holder's logs dead. Each proxy reports that to this server, and repeats it:

    abandoned, a log of our own        the topic is quarantined: this server was abandoned
    abandoned, another's log           the log is known as dead: no giver may bring it, and it contests nothing any more
    … and we were giving the topic to  the freeze ends: our log is closed and another one opened, so that later puts
      that server                      are not in the log that that server may have merged

A proxy that started with an empty directory does not know abandoned logs, and takes a returning copy for a holder. This
server reports the abandoned log to a proxy that names such a holder. It also reports it to a giver that has frozen the
topic for it. Each then has the copy quarantined.

A client with puts or a position there names a log that is neither held nor merged here. While other holders may exist,
that has no meaning. If this server is the sole owner, it means that the log is gone:

    PUT with a gap before it           gone: the client's oldest unfinished row starts the chain again
    GET with a position in that log    gone, with the position to continue from if its subscription is here
"""

from __future__ import annotations

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol.deletions import DELETED
from pubsub.protocol.messages import Get, Operate, Outcome, Put
from pubsub.protocol.names import parse_holder
from pubsub.server.moves.moves import Moves
from pubsub.server.ownership.contested import Contested
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.recovery.quarantine import Quarantine
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Log, Topic, knows
from pubsub.server.upkeep.retention import Retention


class Abandoned:
    """One server's handling of abandoned logs.

    Args:
        proxies: stop announcing the receiver of a given topic, and get reports of abandoned logs they have forgotten.
        contested, sole_owner, retention, moves, quarantine: carry it out.
    """

    def __init__(
        self,
        state: State,
        proxies: Proxies,
        contested: Contested,
        sole_owner: SoleOwner,
        retention: Retention,
        moves: Moves,
        quarantine: Quarantine,
    ) -> None:
        self._state, self._proxies, self._contested, self._sole_owner = state, proxies, contested, sole_owner
        self._retention, self._moves, self._quarantine = retention, moves, quarantine

    # Reports of proxies

    def announced(self, name: str, log: str, now: float) -> None:
        """Quarantine a topic after a proxy reported that our announced log was abandoned."""
        topic = self._state.topics.get(name)
        if topic is not None and (log == topic.open.id or log in topic.restored):
            reason = f"log {log} was abandoned with pubsub topic abandon while this server was away"
            self._quarantine.quarantine(topic, reason, now)

    def named(self, name: str, server: str, log: str, proxy: int, now: float) -> None:
        """Report the log of a holder named by a proxy as abandoned, if this server knows it as such.

        Args:
            server, log: the holder's.
            proxy: its index, as in `Origin.link`.
        """
        if self._state.reader.log_state(log) is c.LogState.ABANDONED:
            self._proxies.tell_abandoned(proxy, name, server, log, now)
            self._state.counters["abandonments_sent"] += 1

    def abandoned(self, origin: Origin, asked: Operate, now: float) -> None:
        """Process OPERATE abandoned from a proxy, after an operator's command or as a repeat."""
        state = self._state
        if asked.log:
            self.announced(asked.topic, asked.log, now)
        topic = state.topics.get(asked.topic)
        news = not asked.log or state.reader.log_state(asked.log).new
        if asked.log and news and not (topic is not None and asked.log in topic.logs):
            state.uncommitted.rows.append(c.LogOpened(state.new_log_number(), asked.log, 0, c.LogState.ABANDONED))
            self._moves.receiving.drop_log(asked.topic, asked.log)
        if topic is not None and asked.log:
            self._contested.settle(topic, asked.log)
        if news and asked.log:
            # The abandoned holder may also be the noted receiver of the topic, and so be recorded as another holder.
            # If another store has the same server ID, the proxies that know that store report it again.
            self._drop_given(asked)
            if topic is not None:
                self._contested.settle(
                    topic, *[log for log, server in topic.contested.items() if server == asked.server]
                )
        # Proxies repeat this permanently. A repeat must not stop a later transfer of the topic to that server.
        if topic is not None and topic.frozen and news and self._moves.gives_to(topic, asked.server, asked.address):
            self._take_back(topic)
        if origin.callback:
            state.replies.answer(origin, Outcome.SUCCESS)

    def _drop_given(self, asked: Operate) -> None:
        """Forget the receiver of the topic if that receiver was abandoned, and stop announcing it."""
        value = self._state.given.get(asked.topic)
        if value is None:
            return
        receiver, given = parse_holder(value.partition(",")[0])
        named = asked.store == value.split(",")[1] if asked.store else asked.server == receiver
        if asked.log == given or named:
            self._state.forget_given(asked.topic)
            self._proxies.remember(asked.topic, "", self._state.change)

    def _take_back(self, topic: Topic) -> None:
        state = self._state
        self._moves.stop(topic.name)
        topic.freeze("")
        log = Log(state.new_log_number(), state.new_log_id())
        state.uncommitted.rows.append(c.LogOpened(log.number, log.id, topic.number))
        topic.go_on_in(log)
        state.measure(topic)
        state.announce(topic.name, log.id)
        self._retention.look_at(topic.name)
        state.counters["topics_taken_back"] += 1

    # Evidence from clients

    def _hold_back(self, origin: Origin, topic: Topic, reason: str) -> None:
        self._quarantine.hold_back(topic, reason)
        self._state.replies.answer(origin, Outcome.UNAVAILABLE, reason=self._state.why_held_back(topic.name))

    def gap(self, origin: Origin, put: Put, topic: Topic | None, sole_owner: bool) -> bool:
        """Process a put that comes too early; return True if it is answered or waits.

        Args:
            sole_owner: enough proxies have answered, for this very put, that no other server holds the topic.
        """
        state = self._state
        if topic is not None and put.log == put.avoid == topic.open.id:
            # A client names a log to avoid only in its oldest unfinished put, so all earlier puts were acknowledged by
            # this very log.
            reason = f"client {put.sender} has an acknowledgement of put {put.previous}, but log {put.log} lacks it"
            self._hold_back(origin, topic, reason)
            return True
        if not put.log or knows(topic, put.log):
            return False
        if sole_owner:
            state.counters["puts_gone"] += 1
            state.replies.answer(origin, Outcome.GONE, log=topic.open.id if topic else "")
            return True
        return self._sole_owner.park(origin, put, Outcome.GAP)

    def place(self, origin: Origin, get: Get, topic: Topic | None, sole_owner: bool) -> bool:
        """Process a GET with a position that may be in a lost log; return True if it is answered or waits."""
        subscription = topic.subscriptions.get(get.sender) if topic else None
        deleted = get.topic in self._state.deletions.numbers
        if get.last is None and (not deleted or subscription is not None):
            return False
        if subscription is not None and subscription.outdates(get.number, get.epoch):
            return False
        if topic is not None and self._beyond(origin, get, topic):
            return True
        mine = subscription if subscription is not None and get.number == subscription.number else None
        if topic is not None and mine is not None:
            known = get.last is None or get.last[0] in topic.logs or get.last[0] in topic.merged
            if known or get.last == mine.cursor.acknowledged or not mine.on:
                return False
        elif get.last is not None and knows(topic, get.last[0]):
            return False
        if sole_owner:
            self._gone(origin, get, topic, mine, deleted=deleted)
            return True
        return self._sole_owner.park(origin, get, Outcome.UNKNOWN)

    def _gone(self, origin: Origin, get: Get, topic: Topic | None, mine: Subscription | None, *, deleted: bool) -> None:
        state = self._state
        state.counters["places_gone"] += 1
        facts: dict[str, object] = {"log": topic.open.id if topic else ""}
        if mine is not None:
            facts["position"] = mine.cursor.acknowledged
        if deleted:
            facts["reason"] = DELETED
            known, loss = state.undelivered.lost(get)
            facts["number"] = get.number if known else 0
            facts["first"], facts["message"] = loss or (None, None)
        state.replies.answer(origin, Outcome.GONE, **facts)

    def _beyond(self, origin: Origin, get: Get, topic: Topic) -> bool:
        """Hold the topic back if a position lies beyond its log's end, since the log was longer at some time."""
        for place in (get.last, get.after):
            log = topic.logs.get(place[0]) if place else None
            if place is not None and log is not None and log.end <= place[1] < OFFSET_MAX:
                reason = f"client {get.sender} has received {place[0]}.{place[1]}, but the log ends before it"
                self._hold_back(origin, topic, reason)
                return True
        return False
