"""Topics that come and go: what a server does with MERGE and TRANSFER.

This is where the two halves of a transfer meet the server's own state: freezing and deleting on the giving side,
storing and joining on the receiving one. A server that gives a topic away receives none of it meanwhile; a server that
does not hold a topic it is offered opens an empty log for it, so an operator's move is the same thing as a merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pubsub.messenger.framing import FIRST_CALLBACK
from pubsub.protocol.messages import Merge, Outcome, Status, Transfer
from pubsub.protocol.names import is_endpoint
from pubsub.server import changes as c
from pubsub.server.givenup import DEAD
from pubsub.server.giving import Giving
from pubsub.server.join import absorb, outdated
from pubsub.server.legs import Leg
from pubsub.server.links import LISTENER, Origin, Outgoing
from pubsub.server.receiving import Incoming, Receiving
from pubsub.server.topic import Entry, Topic
from pubsub.server.transfer import Piece, Staged, chunks

if TYPE_CHECKING:
    from random import Random

    from pubsub.server.core import ServerCore

_HERE: Final = frozenset({"held", "absorbed", "given"})
"""States of a log of which we know that it was joined, or begun, here."""


class Moves:
    """The moves of one server's topics.

    Args:
        core: the server.
        random: for the IDs of transfers.
        now: monotonic seconds.
    """

    def __init__(self, core: ServerCore, random: Random, now: float) -> None:
        self._core = core
        self.giving = Giving(
            core.settings.id,
            random,
            freeze=self._freeze,
            thaw=self._thaw,
            chunks=self._chunks,
            given=self._given,
            unreadable=self._unreadable,
            given_up=lambda log: bool(log) and core.reader.log_state(log) == DEAD,
            gone=core.given_up.announced,
        )
        self.receiving = Receiving(
            core.settings.id,
            number=core.new_log_number,
            store=self._store,
            discard=core.retention.discard,
            join=self._join,
            unstage=core.sinks.discard,
        )
        self._tokens: dict[str, tuple[str, int]] = {}
        self._last_token = FIRST_CALLBACK
        self._resumed = False
        self._joined_now: list[Transfer] = []
        """Answers of this loop that say so; the change number that they name is known when it is committed."""

    def _resume(self, now: float) -> None:
        """Go on with what was frozen in an earlier life, once a proxy has answered: it may have been given up."""
        self._resumed = self._core.links.answered_once
        for topic in self._core.topics.values():
            if topic.frozen and self._resumed and not self._core.quarantine.holds(topic.name):
                self.giving.offer(topic.name, topic.open.id, topic.frozen, now, frozen=True)

    def stop(self, name: str) -> None:
        """Give a topic to nobody, and take nothing of it from anybody."""
        self.giving.gifts.pop(name, None)
        self._tokens.pop(name, None)
        self.receiving.drop(name)

    def gives_to(self, topic: Topic, server: str, address: str) -> bool:
        """Whether a frozen topic is meant for this server."""
        gift = self.giving.gifts.get(topic.name)
        meant = {topic.frozen} if gift is None else {topic.frozen, gift.address}
        return address in meant or (gift is not None and gift.server == server)

    # Messages

    def merge(self, message: Merge, now: float) -> None:
        """MERGE, from a proxy or an operator: offer the topic to the server at the address.

        One that is out of date does nothing: the topic is not held, is on its way to one that is heard, or the other's
        log is joined.
        """
        core = self._core
        topic = core.topics.get(message.topic)
        if topic is None or message.address == core.links.address:
            return
        if core.quarantine.holds(message.topic):
            return
        if not is_endpoint(message.address):
            core.counters["malformed"] += 1
            return
        if topic.frozen:
            self.giving.ask(topic.name, message.address)
            return
        if message.log and (message.log in topic.absorbed or message.log in topic.logs):
            return
        if self.giving.offer(topic.name, topic.open.id, message.address, now):
            core.counters["offers"] += 1

    def transfer(self, origin: Origin, message: Transfer, now: float) -> None:
        """TRANSFER: a step of a giver, or a receiver's answer."""
        if origin.link != LISTENER:
            self.giving.answered(message, now)
            return
        reply = self._step(message, now)
        if isinstance(reply, Transfer | Status):
            if isinstance(reply, Transfer) and reply.step == "done":
                self._joined_now.append(reply)
            self._core.reply(origin, reply)
        else:
            outcome, reason = reply
            self._core.reply(origin, Status(self._core.settings.id, outcome, reason=reason))

    def _step(self, message: Transfer, now: float) -> Transfer | Status | tuple[Outcome, str]:
        core = self._core
        topic = core.topics.get(message.topic)
        if message.sender == core.settings.id:
            return Outcome.REFUSED, "from_myself"
        if self._joined(topic, message.log):
            return Transfer(core.settings.id, message.topic, "done", message.transfer)
        if core.reader.log_state(message.log) == DEAD:
            return Outcome.GONE, "this_log_was_given_up"
        if core.quarantine.holds(message.topic):
            return Outcome.BUSY, "quarantined"
        if core.full:
            return Outcome.FULL, "disk"
        if core.publishers.full and message.step != "commit":
            return Outcome.FULL, "STORE_PUBLISHERS_MAX"
        if topic is not None and topic.frozen:
            gift = self.giving.gifts.get(topic.name)
            server = "" if gift is None else gift.server
            address = topic.frozen if gift is None else gift.address
            return Status(core.settings.id, Outcome.MOVED, reason=address, server=server)
        if topic is not None and not core.links.answered_once:
            # What this store holds of it may have been given up while this server was away: no proxy has said yet.
            return Outcome.BUSY, "no_proxy_has_answered_since_the_start"
        if message.step == "offer":
            own = self.giving.gifts.get(message.topic)
            if own is not None and core.settings.id > message.sender and own.server in {"", message.sender}:
                return Outcome.BUSY, "offered_to_you"  # Crossing offers: the lower server ID receives.
            if own is not None:
                self.giving.cancel(message.topic)
            reply = self.receiving.offered(message, now)
            if isinstance(reply, Transfer) and topic is not None:
                reply.log = topic.open.id
            return reply
        if message.step == "chunk":
            return self.receiving.chunk(message, now)
        if message.step == "commit":
            return self.receiving.commit(message, now)
        return Outcome.REFUSED, "unknown_step"

    def _joined(self, topic: Topic | None, log: str) -> bool:
        if topic is not None and (log in topic.logs or log in topic.absorbed):
            return True
        return bool(log) and self._core.reader.log_state(log) in _HERE

    # The giving side

    def _freeze(self, name: str, address: str) -> None:
        core = self._core
        topic = core.topics[name]
        topic.frozen = address
        core.marks.topic(name)
        core.retention.forget(name)
        core.gets.end_polls(name, Outcome.MOVED)
        self.receiving.drop(name)

    def _thaw(self, name: str) -> None:
        topic = self._core.topics[name]
        topic.frozen = ""
        self._core.marks.topic(name)
        self._core.retention.look_at(name)

    def _chunks(self, name: str) -> Iterator[bytes]:
        return chunks(self._core.topics[name], self._core.reader, self._core.publishers.names)

    def _given(self, name: str, done: Transfer, address: str) -> None:
        core = self._core
        topic = core.topics.pop(name)
        core.marks.gone(name)
        core.marks.rows.append(c.TopicGiven(topic.number, f"{done.sender} {address}"))
        core.marks.rows += [c.SkipDropped(number) for number in topic.skips]
        core.retention.discard([log.number for log in topic.logs.values()])
        core.sinks.discard(topic.stages.values())
        core.announce_given(topic, done)
        self._tokens.pop(name, None)
        core.counters["topics given"] += 1

    def _unreadable(self, name: str, reason: str) -> None:
        """It stays frozen, and here: what can be read of it is only a part."""
        self._core.quarantine.damaged(self._core.topics[name], reason)

    # The receiving side

    def _store(self, incoming: Incoming, piece: Piece | Staged, now: float) -> None:
        core = self._core
        if isinstance(piece, Staged):
            key = core.publishers.number(piece.publisher), piece.batch, piece.attempt
            core.sinks.arrived(incoming.stages, key, piece.heard, piece.rows)
            return
        log = incoming.moving.logs[piece.log]
        if incoming.next == 1 or log.number not in incoming.opened:
            incoming.opened.add(log.number)
            core.marks.rows.append(c.LogOpened(log.number, log.id, 0, "incoming"))
        for batch, publisher in piece.batches:
            core.marks.rows.append(
                c.BatchAppended(
                    log.number,
                    batch.offset,
                    batch.count,
                    core.publishers.number(publisher),
                    batch.counter,
                    batch.stamp,
                    batch.checksum,
                    batch.total,
                    batch.body,
                    sound=False,
                )
            )

    def _join(self, incoming: Incoming, now: float) -> None:
        core, moving = self._core, incoming.moving
        name = incoming.topic
        topic = core.topics.get(name) or core.create(name)
        other = self._arrived(incoming)
        rows = core.marks.rows
        behind = outdated(topic, other)
        rows += [c.LogReplaced(topic.number, log) for log in sorted(behind)]
        core.retention.discard([topic.logs[log].number for log in sorted(behind & topic.logs.keys())])
        known = (topic.absorbed | topic.logs.keys()) - behind
        stored = set(topic.skips)
        made, core.next_skip = absorb(topic, other, core.next_skip)
        rows += [c.SkipStored(number, dict(topic.skips[number])) for number in made]
        rows += [c.SkipDropped(number) for number in sorted(stored - topic.skips.keys())]
        for log in other.logs.values():
            if log.id in known:
                core.retention.discard([log.number])
                continue
            if log.number not in incoming.opened:
                rows.append(c.LogOpened(log.number, log.id, topic.number, "held"))
            rows.append(c.LogJoined(log.number, topic.number, log.low, log.end, log.total))
        for absorbed in sorted(other.absorbed - known - other.logs.keys()):
            number = core.new_log_number()
            rows.append(c.LogOpened(number, absorbed, topic.number, "absorbed"))
            rows += [c.LogEnded(number)] if absorbed in moving.ended else []
        topic.ended |= moving.ended - known
        core.sinks.join(topic, incoming.stages.values())
        core.marks.topic(name)
        for publisher in other.last:
            core.marks.last(name, publisher)
        for subscriber in topic.entries:
            core.marks.entry(name, subscriber)
        core.disputes.joined(topic, moving.rivals.items())
        core.retention.forget(name)
        core.retention.look_at(name)
        for subscriber in moving.entries:
            core.gets.end_outdated_poll(name, subscriber)
        core.polls.appended(name)
        core.counters["topics joined"] += 1

    def _arrived(self, incoming: Incoming) -> Topic:
        """What arrived, with this store's numbers of publishers and copies of `last`."""
        core, moving = self._core, incoming.moving
        skips: dict[int, int] = {0: 0}
        topic = Topic(0, incoming.topic, moving.logs[moving.open], dict(moving.logs))
        for number, counters in moving.skips.items():
            skips[number], core.next_skip = core.next_skip, core.next_skip + 1
            topic.skips[skips[number]] = {core.publishers.number(p): counter for p, counter in counters.items()}

        def renumbered(legs: tuple[Leg, ...]) -> tuple[Leg, ...]:
            return tuple(replace(leg, skip=skips.get(leg.skip, 0)) for leg in legs)

        topic.spine = renumbered(moving.spine)
        topic.absorbed, topic.ended = set(moving.absorbed), set(moving.ended)
        topic.last = {core.publishers.number(p): counter for p, counter in moving.last.items()}
        for name, entry in moving.entries.items():
            topic.entries[name] = Entry(
                entry.number, entry.opening, entry.on, entry.since, entry.acknowledged, renumbered(entry.legs)
            )
        return topic

    # What goes out, failure and time

    def outgoing(self, now: float) -> list[Outgoing]:
        """Steps to be sent to other servers. A refusal comes back to the callback that stands for the transfer."""
        self.giving.pump(now)
        for done in self._joined_now:
            done.store, done.change = self._core.store_id, self._core.change
        self._joined_now.clear()
        out = []
        for address, message in self.giving.out:
            transfer, token = self._tokens.get(message.topic, ("", 0))
            if transfer != message.transfer:
                self._last_token += 1
                token = self._last_token
                self._tokens[message.topic] = (message.transfer, token)
            out.append(Outgoing(address, b"", 0, token, message))
        self.giving.out.clear()
        return out

    def refused(self, origin: Origin, status: Status, now: float) -> None:
        """A receiver's answer where it is not the next step."""
        if status.reason == self._core.links.address:  # It knows us by our address only, since its last start.
            status.server = self._core.settings.id
        for topic, (transfer, token) in self._tokens.items():
            if token == origin.callback:
                self.giving.refused(topic, transfer, status, now)
                return

    def reverted(self, now: float) -> None:
        """The loop was taken back: nothing of it was sent, nothing of it is remembered."""
        self._joined_now.clear()
        self.giving.out.clear()
        self.giving.gifts.clear()
        self.receiving.clear()
        self._resume(now)

    def tick(self, now: float) -> None:
        """What is due by now."""
        if not self._resumed and self._core.links.answered_once:
            self._resume(now)
        self.giving.tick(now)
        self.receiving.tick(now)

    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self.giving.deadline(), self.receiving.deadline())
