"""Topics that arrive and leave: a server's handling of MERGE and TRANSFER.

Here both halves of a transfer meet the server's own state: it freezes and deletes as giver, it stores and merges as
receiver. A server that gives a topic away does not receive the topic at the same time. A server that is offered an
unknown topic opens an empty log for it. So an operator's move is the same operation as a merge.

The rules are those of docs/explanation/merge.md, M3, M5, M6 and M15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from pubsub.messenger.framing import FIRST_CALLBACK
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.names import format_holder, is_endpoint, may_be_one_server, parse_endpoint
from pubsub.protocol.transfers import Merge, Transfer
from pubsub.server.moves.chunks import Copies, DelayedRows, Piece, Staged, chunks, needs
from pubsub.server.moves.giving import Giving
from pubsub.server.moves.receiving import Incoming, Receiving
from pubsub.server.ownership.contested import Contested
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import LISTENER, Origin, Outgoing
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.description import understood
from pubsub.server.topic.merge import merge, outdated
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.delays import Delays
from pubsub.server.upkeep.retention import Retention
from pubsub.server.upkeep.staging import Staging

if TYPE_CHECKING:
    from random import Random


class Moves:
    """The moves of one server's topics.

    Args:
        proxies: shows that a proxy has answered; announces given topics.
        contested: records other holders that a transfer reports.
        retention, staging, delays: delete given topics, and keep arriving ones.
        random: source of transfer IDs.
    """

    def __init__(
        self,
        state: State,
        proxies: Proxies,
        contested: Contested,
        retention: Retention,
        staging: Staging,
        delays: Delays,
        random: Random,
    ) -> None:
        self._state, self._proxies, self._contested = state, proxies, contested
        self._retention, self._staging, self._delays = retention, staging, delays
        self.unreadable: list[tuple[Topic, str]] = []
        """Topics to hold back, because the store is damaged there and they cannot be given; with the reason."""
        self.giving = Giving(
            state.settings.id,
            random,
            freeze=self._freeze,
            thaw=self._thaw,
            chunks=self._chunks,
            given=self._given,
            unreadable=self._unreadable,
            given_up=lambda log: bool(log) and state.reader.log_state(log) is c.LogState.ABANDONED,
            others=self._others,
            needs=lambda name: needs(state.topics[name], state.publishers.names),
        )
        self.receiving = Receiving(
            state.settings.id,
            number=state.new_log_number,
            store=self._store,
            discard=retention.discard,
            merge=self._merge,
            unstage=staging.discard,
            unshelve=delays.discard,
            uncopy=lambda shelf: state.uncommitted.rows.append(c.CopiesDropped(shelf)),
            keep=state.uncommitted.keep_item,
        )
        self._tokens: dict[str, tuple[str, int]] = {}
        self._last_token = FIRST_CALLBACK
        self._resumed = False
        self._merged_now: list[Transfer] = []
        """The `done` answers of this loop; they get the change number once it is known, at the commit."""

    def _resume(self, now: float) -> None:
        """Continue the transfers of topics that an earlier process froze.

        This waits for the answer of a proxy, because the topic may have been abandoned meanwhile.
        """
        self._resumed = self._proxies.answered_once
        for topic in self._state.topics.values():
            if topic.frozen and self._resumed and not self._state.is_held_back(topic.name):
                self.giving.offer(topic.name, topic.open.id, topic.frozen, now, frozen=True)

    def stop(self, name: str) -> None:
        """End every transfer of a topic, in both directions."""
        self.giving.gifts.pop(name, None)
        self._tokens.pop(name, None)
        self.receiving.drop(name)

    def gives_to(self, topic: Topic, server: str, address: str) -> bool:
        """Return True if a frozen topic is meant for this server: by the ID in the address, or without one by place."""
        gift = self.giving.gifts.get(topic.name)
        meant = {topic.frozen} if gift is None else {topic.frozen, gift.address}
        names = {parse_endpoint(one)[0] for one in meant} | ({gift.server} if gift is not None else set())
        if server and server in names:
            return True
        return any(may_be_one_server(address, one) and not parse_endpoint(one)[0] for one in meant)

    # Messages

    def merge(self, message: Merge, now: float) -> None:
        """Process MERGE from a proxy or an operator: offer the topic to the server at the address.

        A late MERGE has no effect. The topic may have left, its transfer to a server that answers may be under way, or
        the other holder's log may be merged.
        """
        state = self._state
        topic = state.topics.get(message.topic)
        if topic is None or may_be_one_server(message.address, self._proxies.address):
            return
        if state.is_held_back(message.topic):
            return
        if not is_endpoint(message.address):
            state.counters["malformed"] += 1
            return
        if topic.frozen:
            self.giving.ask(topic.name, message.address)
            return
        if message.log and (message.log in topic.merged or message.log in topic.logs):
            return
        if self.giving.offer(topic.name, topic.open.id, message.address, now):
            state.counters["offers"] += 1

    def transfer(self, origin: Origin, message: Transfer, now: float) -> None:
        """Process TRANSFER: a step of a giver, or a receiver's answer."""
        if origin.link != LISTENER:
            self.giving.answered(message, now)
            return
        reply = self._step(message, now)
        if isinstance(reply, Transfer | Status):
            if isinstance(reply, Transfer) and reply.step == "done":
                self._merged_now.append(reply)
            self._state.replies.reply(origin, reply)
        else:
            outcome, reason = reply
            self._state.replies.reply(origin, Status(self._state.settings.id, outcome, reason=reason))

    def _step(self, message: Transfer, now: float) -> Transfer | Status | tuple[Outcome, str]:
        state = self._state
        topic = state.topics.get(message.topic)
        if message.sender == state.settings.id:
            return Outcome.REFUSED, "from_myself"
        if self._is_merged(topic, message.log):
            if message.step == "commit" and message.body:  # The giver has learned of other holders meanwhile.
                self._contested.told(message.topic, str(message.body, "ascii", "replace"))
            return Transfer(state.settings.id, message.topic, "done", message.transfer)
        if message.deletion != state.deletions.number(message.topic):
            # The proxies tell the deletion to the server that does not know it. A topic from before it is then dropped.
            return Outcome.BUSY, "the_topic_was_deleted_and_one_of_the_servers_has_not_stored_that_yet"
        if state.reader.log_state(message.log) is c.LogState.ABANDONED:
            return Outcome.GONE, "this_log_was_given_up"
        if state.is_held_back(message.topic):
            return Outcome.BUSY, "the_topic_is_held_back"
        if state.full:
            return Outcome.FULL, "disk"
        if state.publishers.full and message.step != "commit":
            return Outcome.FULL, "STORE_PUBLISHERS_MAX"
        if topic is not None and topic.frozen:
            gift = self.giving.gifts.get(topic.name)
            server = "" if gift is None else gift.server
            address = topic.frozen if gift is None else gift.address
            return Status(state.settings.id, Outcome.MOVED, reason=address, server=server)
        if topic is not None and not self._proxies.answered_once:
            # The log in this store may have been abandoned while this server was away; a proxy would report it.
            return Outcome.BUSY, "no_proxy_has_answered_since_the_start"
        if message.step == "offer":
            own = self.giving.gifts.get(message.topic)
            if own is not None and state.settings.id > message.sender and own.server in {"", message.sender}:
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

    def _is_merged(self, topic: Topic | None, log: str) -> bool:
        if topic is not None and (log in topic.logs or log in topic.merged):
            return True
        return bool(log) and self._state.reader.log_state(log).merged_here

    # The giving side

    def _freeze(self, name: str, address: str) -> None:
        state = self._state
        topic = state.topics[name]
        topic.freeze(address)
        self._retention.forget(name)
        state.long_polls.end_all(name, Outcome.MOVED)
        self.receiving.drop(name)

    def _thaw(self, name: str) -> None:
        self._state.topics[name].freeze("")
        self._retention.look_at(name)
        self._delays.thawed(name)

    def _chunks(self, name: str, form: int) -> Iterator[bytes]:
        return chunks(self._state.topics[name], self._state.reader, self._state.publishers.names, form)

    def _others(self, name: str) -> str:
        contested = self._state.topics[name].contested
        return ",".join(format_holder(server, log) for log, server in sorted(contested.items()))

    def _given(self, name: str, done: Transfer, address: str) -> None:
        state = self._state
        topic = state.topics[name]
        self.discard(topic, c.TopicGiven(topic.number, f"{done.sender} {address}"))
        state.announce_given(topic, done)
        self._tokens.pop(name, None)
        state.counters["topics_given"] += 1

    def discard(self, topic: Topic, change: c.TopicGiven) -> None:
        """Remove a topic that was given away or deleted; its messages are deleted later."""
        state = self._state
        state.remove(topic.name)
        state.uncommitted.rows.append(change)
        state.uncommitted.rows += [c.WatermarkDropped(number) for number in topic.watermarks]
        self._retention.discard([log.number for log in topic.logs.values()])
        self._staging.discard(topic.stages.values())
        self._delays.discard((topic.number, *topic.delayed.shelves) if topic.delayed else ())

    def _unreadable(self, name: str, reason: str) -> None:
        """Keep the topic here and frozen, because only a part of it can be read."""
        self.unreadable.append((self._state.topics[name], reason))

    # The receiving side

    def _store(self, incoming: Incoming, piece: Piece, now: float) -> None:
        state = self._state
        if isinstance(piece, Copies):
            incoming.copies = incoming.copies or state.new_shelf()
            rows = (c.CopyKept(incoming.copies, piece.group, one.copy, one.body) for one in piece.rows)
            state.uncommitted.rows.extend(rows)
            return
        if isinstance(piece, DelayedRows):
            self._delays.arrived(incoming.delayed, piece.rows)
            return
        if isinstance(piece, Staged):
            key = state.publishers.number(piece.publisher), piece.batch, piece.attempt
            self._staging.arrived(incoming.stages, key, piece.heard, map(astuple, piece.pieces))
            return
        log = incoming.moving.logs[piece.log]
        if incoming.next == 1 or log.number not in incoming.opened:
            incoming.opened.add(log.number)
            state.uncommitted.rows.append(c.LogOpened(log.number, log.id, 0, c.LogState.INCOMING))
        for one in piece.batches:
            by, count, counter = state.publishers.number(one.publisher), one.count, one.counter
            facts = log.number, one.offset, count, by, counter, one.stamp, one.checksum, one.total, one.body
            state.uncommitted.rows.append(c.BatchAppended(*facts, sound=False))

    def _merge(self, incoming: Incoming, now: float) -> None:
        state, name = self._state, incoming.topic
        topic = state.topics.get(name) or state.create(name)
        other = self._arrived(incoming)
        rows = state.uncommitted.rows
        behind = outdated(topic, other)
        rows += [c.LogReplaced(topic.number, log) for log in sorted(behind)]
        self._retention.discard([topic.logs[log].number for log in sorted(behind & topic.logs.keys())])
        known = (topic.merged | topic.logs.keys()) - behind
        stored = set(topic.watermarks)
        # A restored copy lacks waiting messages that were due before the restore, and did not deliver them.
        last = {} if behind else dict(topic.last)
        its_last = {} if outdated(other, topic) else dict(other.last)
        made, state.next_watermark = merge(topic, other, state.next_watermark)
        rows += [c.WatermarkStored(number, dict(topic.watermarks[number])) for number in made]
        rows += [c.WatermarkDropped(number) for number in sorted(stored - topic.watermarks.keys())]
        for log in other.logs.values():
            if log.id in known:
                self._retention.discard([log.number])
                continue
            if log.number not in incoming.opened:
                rows.append(c.LogOpened(log.number, log.id, topic.number))
            rows.append(c.LogMerged(log.number, topic.number, log.low, log.end, log.total))
            if log.id in other.compacted:
                rows.append(c.LogCompacted(log.number, (), other.compacted[log.id]))
        for merged in sorted(other.merged - known - other.logs.keys()):
            number = state.new_log_number()
            rows.append(c.LogOpened(number, merged, topic.number, c.LogState.MERGED))
            rows += [c.LogEnded(number)] if merged in other.ended else []
        self._staging.merge(topic, incoming.stages.values())
        self._delays.merge(topic, incoming.delayed, last, its_last, now)
        self._merge_copies(topic, other, incoming.copies)
        self._contested.merged(topic, other.contested.items())
        self._retention.forget(name)
        self._retention.look_at(name)
        for subscriber in other.subscriptions:
            state.long_polls.end_outdated(name, subscriber, topic.subscriptions[subscriber])
        state.long_polls.also_merged(name)
        state.long_polls.appended(name)
        state.counters["topics_merged"] += 1

    def _merge_copies(self, topic: Topic, other: Topic, shelf: int) -> None:
        """Give the topic the copied records of the groups that it took over, and drop the others."""
        if shelf:
            taken = [name for name, group in other.groups.items() if topic.groups.get(name) is group]
            rows = self._state.uncommitted.rows
            rows += [c.CopiesMerged(shelf, topic.number, name) for name in taken]
            rows.append(c.CopiesDropped(shelf))

    def _arrived(self, incoming: Incoming) -> Topic:
        """Return the received topic with this store's numbers of publishers and copies of `last`."""
        return understood(incoming.topic, incoming.moving, self._state.publishers.number, self._state.new_watermark)

    def forget_given(self) -> None:
        """Forget the receiver of a given topic once every proxy has confirmed it."""
        state = self._state
        if state.announcements:
            return
        for name in [name for name in state.given if self._proxies.is_known_as_given(name)]:
            state.forget_given(name)

    # Outgoing messages, failure and time

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return the steps for other servers. A refusal refers to the transfer by its callback."""
        self.giving.pump(now)
        for done in self._merged_now:
            done.store, done.change = self._state.store_id, self._state.change
        self._merged_now.clear()
        out = []
        for address, message in self.giving.out:
            message.deletion = self._state.deletions.number(message.topic)
            transfer, token = self._tokens.get(message.topic, ("", 0))
            if transfer != message.transfer:
                self._last_token += 1
                token = self._last_token
                self._tokens[message.topic] = (message.transfer, token)
            out.append(Outgoing(address, b"", 0, token, message))
        self.giving.out.clear()
        return out

    def refused(self, origin: Origin, status: Status, now: float) -> tuple[str, str]:
        """Process a receiver's answer that refuses a step.

        Returns:
            A frozen topic and its open log if the receiver reports this very log as abandoned; otherwise "" and "".
        """
        # A restarted receiver knows this server only by its address.
        if may_be_one_server(status.reason, self._proxies.address):
            status.server = self._state.settings.id
        for topic, (transfer, token) in self._tokens.items():
            if token == origin.callback:
                return topic, self.giving.refused(topic, transfer, status, now)
        return "", ""

    def reverted(self, now: float) -> None:
        """Forget the undone loop: its messages were not sent and its changes are gone."""
        self._merged_now.clear()
        self.giving.out.clear()
        self.giving.gifts.clear()
        self.receiving.clear()
        self._resume(now)

    def tick(self, now: float) -> None:
        """Do all that is due."""
        if not self._resumed and self._proxies.answered_once:
            self._resume(now)
        self.giving.tick(now)
        self.receiving.tick(now)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        return min(self.giving.deadline(), self.receiving.deadline())
