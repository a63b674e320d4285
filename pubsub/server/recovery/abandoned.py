"""What is left of a holder that was given up: those who had history there go on here.

The rules are those of docs/architecture.md, *Giving up*.

`pubsub topic abandon` names the lost holder's logs dead. This server is told by each proxy, then and again:

    abandoned, a log of our own        the topic is set aside: it is we who were given up
    abandoned, another's log           known as dead from now on: never accepted from a giver, in the way no more
    … and we were giving the topic to  the freeze is over: our log is closed and another one opened, so that what
      that server                      goes on here is not what that server may have merged

A proxy that started with an empty directory has forgotten what was given up, and takes a copy that comes back for a
holder. Who knows better says so: this server, to a proxy that names such a holder to it, and to a giver that has frozen
the topic for it. Either then has the copy set aside.

A client whose puts or place were there names a log that is neither held nor merged here. While other holders may
exist that means nothing. While the topic is whole it means that the log is gone:

    PUT with a gap before it           gone: its oldest unfinished row begins the chain anew
    GET with its place in that log     gone; with the place to go on from where a subscription with its number is here
"""

from __future__ import annotations

from pubsub.base.limits import OFFSET_MAX
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
    """How one server deals with logs that were given up.

    Args:
        state: the server's.
        proxies: told no more to whom a topic was given, and what they have forgotten.
        contested, sole_owner, retention, moves, quarantine: what is done about it.
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

    # What is told

    def announced(self, name: str, log: str, now: float) -> None:
        """A proxy says that a log which we announced was given up."""
        topic = self._state.topics.get(name)
        if topic is not None and (log == topic.open.id or log in topic.restored):
            reason = f"log {log} was given up by pubsub topic abandon while this server was not heard"
            self._quarantine.set_aside(topic, reason, now)

    def named(self, name: str, server: str, log: str, proxy: int, now: float) -> None:
        """A proxy names another holder of a topic of ours; it is told where we know that holder's log as given up.

        Args:
            server, log: the holder's.
            proxy: which one, as in `Origin.link`.
        """
        if self._state.reader.log_state(log) is c.LogState.ABANDONED:
            self._proxies.tell_abandoned(proxy, name, server, log, now)
            self._state.counters["proxies_told_of_abandoned"] += 1

    def abandoned(self, origin: Origin, asked: Operate, now: float) -> None:
        """OPERATE abandoned: from a proxy, to which an operator said so, or which says it again."""
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
            # That holder may also be named as the one to whom the topic was given, and so be noted as another holder.
            # Another store under the same server ID is told of again by the proxies that know it.
            self._drop_given(asked)
            if topic is not None:
                self._contested.settle(
                    topic, *[log for log, server in topic.contested.items() if server == asked.server]
                )
        # Proxies say it again for ever; by then the topic may be on its way to that server for another reason.
        if topic is not None and topic.frozen and news and self._moves.gives_to(topic, asked.server, asked.address):
            self._take_back(topic)
        if origin.callback:
            state.replies.answer(origin, Outcome.SUCCESS)

    def _drop_given(self, asked: Operate) -> None:
        """Whom the topic was given to was given up there: there is nobody to be told of any more."""
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

    # What clients show

    def _hold_back(self, origin: Origin, topic: Topic, reason: str) -> None:
        self._quarantine.hold_back(topic, reason)
        self._state.replies.answer(origin, Outcome.UNAVAILABLE, reason=self._state.why_held_back(topic.name))

    def gap(self, origin: Origin, put: Put, topic: Topic | None, sole_owner: bool) -> bool:
        """A put that comes too early; whether it is, or will be, answered.

        Args:
            sole_owner: every proxy has answered, for this very put, that no other server holds the topic.
        """
        state = self._state
        if topic is not None and put.log == put.avoid == topic.open.id:
            # A client names a log to avoid only in its oldest unfinished put: all puts before that one were
            # acknowledged
            # by this very log.
            reason = f"client {put.sender} put {put.previous} here, and it was acknowledged; it is not in log {put.log}"
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
        """A GET whose place may be one that is gone; whether it is, or will be, answered."""
        subscription = topic.subscriptions.get(get.sender) if topic else None
        if get.last is None or (subscription is not None and subscription.outdates(get.number, get.opening)):
            return False
        if topic is not None and self._beyond(origin, get, topic):
            return True
        mine = subscription if subscription is not None and get.number == subscription.number else None
        if topic is not None and mine is not None:
            known = get.last[0] in topic.logs or get.last[0] in topic.merged
            if known or get.last == mine.cursor.acknowledged or not mine.on:
                return False
        elif knows(topic, get.last[0]):
            return False
        if sole_owner:
            self._gone(origin, topic, mine)
            return True
        return self._sole_owner.park(origin, get, Outcome.UNKNOWN)

    def _gone(self, origin: Origin, topic: Topic | None, subscription: Subscription | None) -> None:
        state = self._state
        state.counters["places_gone"] += 1
        place = None if subscription is None else subscription.cursor.acknowledged
        state.replies.answer(origin, Outcome.GONE, position=place, log=topic.open.id if topic else "")

    def _beyond(self, origin: Origin, get: Get, topic: Topic) -> bool:
        """Whether a place lies beyond its log's end: then this log was longer once."""
        for place in (get.last, get.after):
            log = topic.logs.get(place[0]) if place else None
            if place is not None and log is not None and log.end <= place[1] < OFFSET_MAX:
                reason = f"client {get.sender} has received {place[0]}.{place[1]}; the log ends before it"
                self._hold_back(origin, topic, reason)
                return True
        return False
