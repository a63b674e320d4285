"""Collect the calls of a client, each written once as a flow (see `flow`).

Order of commits, fsyncs and messages (docs/explanation/put.md, *Durability at the client*; docs/explanation/get.md,
*Places in the stream*):

    put                 the outbox row is committed before it is sent, and fsynced if the client is power_safe
    transaction         one commit with the caller's rows, fsynced before any of its puts is sent
    process             effect, puts and position in one commit, fsynced before its puts are sent
    request, call       the request and the call's own row are one commit, fsynced before the request is sent
    serve               as process, with the reply
    reply               the reply, its call's row and the position are one commit before the return
    get, get_many       the position is committed before the return
    hand_on             the caller's work on the messages comes first, then the position is committed
    subscribe, …        the intent is fsynced before the first transmission, the answer before the return
    acknowledgements    cover only fsynced positions, at most SYNC_SECONDS after the messages were taken

The rule is docs/explanation/put.md, P6.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from pubsub.client.arguments import check_truth
from pubsub.client.closing import close
from pubsub.client.core.calling import requested
from pubsub.client.core.chain import Row
from pubsub.client.core.changes import CallsDiscarded, Intended, Renewed
from pubsub.client.flows.calling import Calling
from pubsub.client.flows.families import FamilyGets
from pubsub.client.flows.group_gets import GroupGets
from pubsub.client.flows.group_waits import GroupWaits
from pubsub.client.flows.letter_requests import LetterRequests
from pubsub.client.flows.puts import Puts
from pubsub.client.flows.redriving import Redriving
from pubsub.client.flows.subscribing import Subscribing
from pubsub.client.guards import guards
from pubsub.client.repair import repair
from pubsub.client.session import Session
from pubsub.errors import PubsubError, StorageError
from pubsub.protocol import check_topic
from pubsub.protocol.names import is_service_topic

_log: Final = logging.getLogger("pubsub.client")


class Calls:
    """The calls on one session.

    Attributes:
        puts, subscribing, gets, calling, redriving, group_waits, group_gets: calls by subject.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.puts, self.subscribing, self.gets = Puts(session), Subscribing(session), FamilyGets(session)
        self.calling = Calling(session, self.gets, self.subscribing)
        self.redriving = Redriving(session, self.puts)
        self.group_waits = GroupWaits(session)
        self.group_gets = GroupGets(self.group_waits)
        self.gets.requests = LetterRequests(self.redriving)

    def discard(self, topic: str) -> int:
        """Give up every unfinished put on a topic, fsynced; return the number of messages."""
        check_topic(topic)
        with self.session.entered():
            self.session.accumulator.close(topic)
            rows = self._discard(topic)
            for row in rows:
                self.session.core.flights.forget(row.tokens)
            if rows:
                self.session.follow()
            return sum([row.count for row in rows])

    def _discard(self, topic: str) -> list[Row]:
        """Remove a topic's unfinished rows from the outbox, in one commit with the calls requested in them."""
        session, outbox = self.session, self.session.core.outbox
        changes, rows = outbox.discard(topic)
        if rows:
            bodies = (row.body if row.body is not None else session.store.body(row.counter) for row in rows)
            calls = requested(bodies) if is_service_topic(topic) else []
            session.store.commit([*changes, *([CallsDiscarded(calls)] if calls else [])], fsync=True)
            outbox.removed()
            outbox.discarded(topic)
            if session.recorder is not None:
                session.recorder.discarded(rows)
        return rows

    def renew(self, *, keep: bool) -> None:
        """Make the state directory another publisher, fsynced; keep its unfinished puts if `keep` is True."""
        check_truth("keep", keep)
        session = self.session
        core = session.core
        with session.entered():
            core.numbers.reopen()  # First, since the disk may refuse this: then nothing has happened.
            for topic in [] if keep else [t for t, chain in core.outbox.chains.items() if chain.rows]:
                self._discard(topic)
            store = secrets.token_hex(8)
            on = [sub for sub in core.subscriptions.values() if sub.intent.on]
            patterns = core.families.renewal()
            left = [sub.topic for sub in on if patterns and sub.joined]
            wanted = [sub for sub in on if not (patterns and sub.joined)]
            # This commit also removes finished rows from the store. The next start would take them for unfinished
            # ones, and send them again under the new publisher.
            changes = [Renewed(store), *core.outbox.renewal(), *[sub.intend(True, fresh=True) for sub in wanted]]
            given_up = [change for sub in on for change in core.waiting.dropping(sub.topic)]
            ended = [Intended(topic, False) for topic in left]
            groups = core.group_renewal(store)
            session.commit([*changes, *patterns, *ended, *given_up, *groups], fsync=True)
            core.renewed(store, wanted)
            core.groups_renewed(groups)
            until = session.until(None)
            for pattern in patterns:
                core.families.planned(pattern, left, until)
                core.families.settle(core.families.by_pattern[pattern.pattern], until)
                left = []
            for sub in on:
                core.waiting.drop(sub.topic)
            if session.recorder is not None:
                session.recorder.renewed()
            session.follow()

    def close(self, seconds: float) -> None:
        """End the session; acknowledgements may take `seconds`.

        Raises:
            CallerError: this thread is inside a transaction.
            StorageError: a commit failed, so messages taken but not returned may be lost; all is released.
        """
        try:
            self.close_here()
        except StorageError:
            self._end(seconds)
            raise
        self._end(seconds)

    def _end(self, seconds: float) -> None:
        if not self.session.released and self.session.inherited is None:
            close(self.session, seconds, self.gets.close_chunks)

    def close_here(self) -> None:
        """Give back taken messages that were not returned, and move the open batches of publishers to the outbox."""
        session = self.session
        if session.closed:
            return
        # A `with` block that an exception has left without an __exit__ must not keep the client open.
        if session.block is None:
            session.check_outside()
        if session.cut_off():
            repair(session)
            self.close_batches()
        else:
            self.close_batches()
            self.gets.close_chunks()

    def close_batches(self) -> None:
        """Put the open batches of publishers that were not closed; they are kept if there is no time to send them."""
        for timer in tuple(self.session.timers):
            try:
                held = timer.finish()
            except PubsubError as error:
                text = "client %s: messages in a publisher on %s that was not closed are lost: %s"
                _log.error(text, self.session.name, timer.topic, error)
                continue
            if held:
                which = "the message" if held == 1 else f"the {held:,} messages"
                text = (
                    "client %s: a publisher on %s was not closed; %s in its open batch went to the outbox just now, and"
                    " will be sent at once or at this client's next start. Use it in a with block, or call close()"
                )
                _log.warning(text, self.session.name, timer.topic, which)


guards(Calls.close)
