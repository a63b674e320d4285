"""Giving a topic to another server: offer, freeze, chunks, commit, delete.

See docs/explanation/merge.md, *Rules of the transfer*, M4, M7 and M14.

The table shows the reaction to each event, by state:

    OFFERED   accepted → freeze, durably, and send chunks    done → it was merged before: delete
              moved to X → offer to X                        busy or silence → offer again
              its other member serves → offer to that one
    SENDING   chunk n acknowledged → send on                 all acknowledged → commit
              done → delete, leaving a tombstone             moved to X, unknown → offer again (to X)
              chunk refused → thaw

Each step is a TRANSFER; a refusal is a STATUS. `moves` joins both halves of a transfer, and sends.

If this server learns of other holders after the first chunk has left, it reports them after `done`, in one more commit.

Only two facts are durable: that the topic is frozen, and the receiver's address. After a crash the transfer starts
again with an offer. The receiver answers it with `done` if it has merged the log already.

A frozen topic stays frozen until one of these events:

* Some server reports that it has merged the topic.
* The receiver reports that it never will.
* The receiver accepts the offer and then refuses a chunk. It had not merged the log by then, and it cannot merge a part
  of a log.

If the receiver is silent and another address is named, this server asks there. The receiver may have moved to that
address, or another server there may hold the merged topic.

An address from before the servers had keys is not connected to. Neither is an address with an ID after the keys are
gone. The same place with or without a server ID is the same receiver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import Buffer
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.names import may_be_one_server, parse_endpoint
from pubsub.protocol.transfers import Transfer

if TYPE_CHECKING:
    from random import Random

WINDOW: Final = 4
"""Chunks under way at once; this bounds the memory of a transfer on either side."""

RETRY_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 5.0
OFFER_TRIES_MAX: Final = 8
"""Unanswered offers after which an unfrozen topic is kept; a proxy asks again."""

SILENT_TRIES: Final = 3
"""Unanswered tries after which the receiver may have another address."""

REFUSED_SECONDS: Final = 60.0
"""Pause before a topic is offered again after a receiver refused a chunk; proxies ask for it every second."""

GIFTS_MAX: Final = 4
"""Topics given at the same time; further ones wait. Topics with a silent receiver do not count."""


class State(Enum):
    """The progress of a gift."""

    OFFERED = "offered"
    SENDING = "sending"


@dataclass(slots=True)
class Gift:
    """A topic under transfer.

    Attributes:
        address: of the receiver.
        server: the receiver's ID, as soon as it has answered; from the start if its address names it.
        frozen: the address that the topic is frozen for; "" if it is not frozen.
        transfer: the ID of this attempt.
        acknowledged: number of chunks that the receiver has, without gaps.
        unacknowledged: chunks under way.
        total: the number of all chunks, once all are made.
        behind: True if the last answer asked for a chunk that the receiver had acknowledged already.
        hungry: True if the window may have room.
        said: the other holders named in the first chunk or the last commit.
        late: other holders that the commit names.
        question: the ID of an offer to `elsewhere`, an address other than the silent receiver's; "" for none.
    """

    topic: str
    address: str
    transfer: str
    log: str
    server: str = ""
    state: State = State.OFFERED
    frozen: str = ""
    acknowledged: int = 0
    unacknowledged: deque[bytes] = field(default_factory=deque)
    source: Iterator[bytes] | None = None
    total: int | None = None
    behind: bool = False
    hungry: bool = False
    said: str = ""
    late: str = ""
    question: str = ""
    elsewhere: str = ""
    tries: int = 0
    retry_at: float = 0.0
    wait: float = RETRY_SECONDS


class Giving:
    """All topics that this server is giving away.

    Args:
        sender: this server's ID.
        random: source of transfer IDs.
        freeze: freezes a topic, durably, for the server at an address.
        thaw: makes a frozen topic an ordinary one again.
        chunks: returns the chunks of a frozen topic, in the newest form that the receiver reads.
        given: deletes a topic that the sender of this `done`, at an address, has merged.
        unreadable: called with a topic that cannot be given because the store is damaged there, and the reason.
        given_up: returns True if a log is known here as abandoned.
        others: returns the other known holders of a topic, as one word.
        needs: returns the form of chunks that a topic's receiver must read.
    """

    def __init__(
        self,
        sender: str,
        random: Random,
        *,
        freeze: Callable[[str, str], None],
        thaw: Callable[[str], None],
        chunks: Callable[[str, int], Iterator[bytes]],
        given: Callable[[str, Transfer, str], None],
        unreadable: Callable[[str, str], None] = lambda topic, reason: None,
        given_up: Callable[[str], bool] = lambda log: False,
        others: Callable[[str], str] = lambda topic: "",
        needs: Callable[[str], int] = lambda topic: 1,
    ) -> None:
        self._sender, self._random = sender, random
        self._freeze, self._thaw, self._chunks, self._given = freeze, thaw, chunks, given
        self._unreadable, self._given_up, self._others, self._needs = unreadable, given_up, others, needs
        self.gifts: dict[str, Gift] = {}
        self._refused: dict[str, float] = {}
        """Topics with a refused chunk, and the time until which they are not offered again."""
        self.out: list[tuple[str, Transfer]] = []
        """Messages to send, each with its address."""

    def offer(self, topic: str, log: str, address: str, now: float, *, frozen: bool = False) -> bool:
        """Start to give a topic.

        Args:
            log: its open log.
            frozen: True if an earlier process froze it.

        Returns:
            False if the topic is being given already, too many are, or a chunk of it was refused a short time ago.
        """
        answered = sum(gift.tries < SILENT_TRIES for gift in self.gifts.values())
        if topic in self.gifts or (not frozen and (answered >= GIFTS_MAX or now < self._refused.get(topic, 0.0))):
            return False
        server = parse_endpoint(address)[0]
        self.gifts[topic] = gift = Gift(topic, address, self._new_id(), log, server, frozen=address if frozen else "")
        self._send_offer(gift, now)
        return True

    def cancel(self, topic: str) -> bool:
        """Withdraw an offer that is not accepted yet; return False if the topic is frozen."""
        gift = self.gifts.get(topic)
        if gift is not None and gift.frozen:
            return False
        self.gifts.pop(topic, None)
        return True

    def ask(self, topic: str, address: str) -> None:
        """Ask another address if the silent receiver of a frozen topic is there now.

        Only the server that got the offer may receive the topic, because it may have merged it without our knowing. But
        the answer of any server that has the log ends the transfer.
        """
        gift = self.gifts.get(topic)
        if gift is None or not gift.frozen or gift.address == address or gift.tries < SILENT_TRIES:
            return
        self._ask_elsewhere(gift, address)

    def _ask_elsewhere(self, gift: Gift, address: str) -> None:
        gift.question, gift.elsewhere = self._new_id(), address
        self.out.append((address, Transfer(self._sender, gift.topic, "offer", gift.question, 0, gift.log)))

    def _answered_elsewhere(self, gift: Gift, message: Transfer, now: float) -> None:
        if message.step == "done":
            gift.address, gift.server, gift.question = gift.elsewhere, message.sender, ""
            self._done(gift, message, now)
        elif message.step == "accepted" and _is_receiver(gift, message.sender):
            gift.address, gift.question, gift.transfer = gift.elsewhere, "", self._new_id()
            gift.tries, gift.wait = 0, RETRY_SECONDS
            self._freeze_for_receiver(gift)
            self._send_offer(gift, now)

    def _freeze_for_receiver(self, gift: Gift) -> None:
        gift.frozen = gift.address
        self._freeze(gift.topic, gift.address)

    def _new_id(self) -> str:
        return f"{self._random.getrandbits(64):016x}"

    def _send_offer(self, gift: Gift, now: float) -> None:
        gift.state, gift.source, gift.total, gift.acknowledged = State.OFFERED, None, None, 0
        gift.hungry = False
        gift.unacknowledged.clear()
        gift.behind = False
        gift.said = gift.late = ""
        gift.tries += 1
        gift.retry_at = now + gift.wait
        self._send(gift, "offer")

    def _send(self, gift: Gift, step: str, chunk: int = 0, body: Buffer = b"") -> None:
        # Every step names the log, so that a receiver that has merged it can answer `done` at any step.
        message = Transfer(self._sender, gift.topic, step, gift.transfer, chunk, gift.log, body)
        self.out.append((gift.address, message))

    # Answers

    def answered(self, message: Transfer, now: float) -> None:
        """Process the receiver's next step."""
        gift = self.gifts.get(message.topic)
        if gift is not None and gift.question == message.transfer:
            self._answered_elsewhere(gift, message, now)
            return
        if gift is None or gift.transfer != message.transfer:
            return
        if message.step == "accepted" and not gift.frozen and message.form < self._needs(message.topic):
            # An earlier release refuses a part of the topic. A frozen topic could not be taken back from it.
            self._stop(message.topic, now)
            return
        if message.step == "accepted" and not gift.frozen and self._given_up(message.log):
            # The receiver does not know yet that its log was abandoned, and would quarantine this topic with that log.
            # The topic is offered again a little later, as if the receiver had not answered.
            return
        gift.tries, gift.wait, gift.server = 0, RETRY_SECONDS, message.sender
        if message.step == "done":
            self._done(gift, message, now)
        elif message.step == "accepted" and gift.state is State.OFFERED:
            # The topic may be frozen for another receiver, which named this one. The freeze names the new receiver.
            if gift.frozen != gift.address:
                self._freeze_for_receiver(gift)
            gift.state, gift.source = State.SENDING, self._chunks(gift.topic, message.form)
            gift.said = self._others(gift.topic)
            gift.hungry, gift.retry_at = True, now + gift.wait
        elif message.step == "chunk" and gift.state is State.SENDING:
            while gift.acknowledged < message.chunk and gift.unacknowledged:
                gift.unacknowledged.popleft()
                gift.acknowledged += 1
            gift.behind = message.chunk < gift.acknowledged
            if not gift.behind:  # The sent chunks are gone, so a receiver that is behind needs a new start by `tick`.
                gift.hungry, gift.retry_at = True, now + gift.wait

    def _done(self, gift: Gift, message: Transfer, now: float) -> None:
        """Delete the merged topic, as soon as the receiver knows all other holders that this server has learned of."""
        others = self._others(gift.topic)
        if not gift.frozen or others in {"", gift.said}:
            del self.gifts[gift.topic]
            self._given(gift.topic, message, gift.address)
            return
        # A new ID, so that a late `done` to an earlier message does not count as the answer to this commit.
        gift.transfer, gift.said, gift.late = self._new_id(), others, others
        gift.state, gift.source, gift.total = State.SENDING, None, 0
        gift.unacknowledged.clear()
        self._send_commit(gift, now)

    def _send_commit(self, gift: Gift, now: float) -> None:
        assert gift.total is not None
        self._send(gift, "commit", gift.total, gift.late.encode("ascii"))
        gift.retry_at = now + gift.wait

    def refused(self, topic: str, transfer: str, status: Status, now: float) -> str:
        """Process an answer of the receiver that is not the next step.

        * MOVED: the receiver is giving the topic away itself, to the named server. It did not merge the log and will
          not.
        * DEPOSED: the receiver's other member serves, at the named address.
        * UNKNOWN: the receiver does not know this transfer, or has forgotten it.
        * GONE: the log was abandoned, so the receiver never takes it. No other server may take a frozen topic, so it is
          quarantined.
        * REFUSED, for a chunk: the receiver takes no part of the topic, and every further try would end alike.
        * Any other outcome: try later.

        Returns:
            The open log of a frozen topic if the receiver reports this very log as abandoned; otherwise "".
        """
        gift = self.gifts.get(topic)
        if gift is not None and gift.question == transfer and _is_receiver(gift, status.sender):
            if status.outcome is Outcome.MOVED and status.server == self._sender:
                self._crossed(gift, status)
            return gift.log if status.outcome is Outcome.GONE else ""
        if gift is None or gift.transfer != transfer:
            return ""
        if status.outcome is Outcome.DEPOSED and status.reason:
            self._replaced(gift, status, now)
        elif status.outcome is Outcome.MOVED and status.reason:
            gift.transfer = self._new_id()
            if status.server == self._sender:
                self._crossed(gift, status)
                return ""
            gift.address, gift.server = status.reason, status.server or parse_endpoint(status.reason)[0]
            self._send_offer(gift, now)
        elif status.outcome is Outcome.GONE and gift.frozen:
            return gift.log
        elif status.outcome is Outcome.UNKNOWN and gift.state is State.SENDING:
            gift.transfer = self._new_id()
            self._send_offer(gift, now)
        elif status.outcome is Outcome.REFUSED and gift.unacknowledged:  # No commit was sent since the acceptance.
            self._stop(topic, now)
            self._thaw(topic)
        return ""

    def _stop(self, topic: str, now: float) -> None:
        """Offer a topic no more for a while, because its receiver takes it in no case."""
        self._refused = {one: until for one, until in self._refused.items() if now < until}
        self._refused[topic] = now + REFUSED_SECONDS
        del self.gifts[topic]

    def _replaced(self, gift: Gift, status: Status, now: float) -> None:
        """Offer to the receiver's other member, which serves now; if it is silent too, ask the receiver again."""
        gift.server = gift.server or status.sender
        if gift.frozen:
            self._ask_elsewhere(gift, status.reason)
        else:
            gift.address, gift.transfer = status.reason, self._new_id()
            self._send_offer(gift, now)

    def _crossed(self, gift: Gift, status: Status) -> None:
        """Resolve a deadlock: each server waits for the other, because the other has the topic frozen for it.

        A server without a freeze withdraws its offer. If both have a freeze, the server with the lower ID takes its
        topic back. That server then accepts.
        """
        if self._sender < status.sender or not gift.frozen:
            del self.gifts[gift.topic]
            if gift.frozen:
                self._thaw(gift.topic)

    def pump(self, now: float) -> None:
        """Read and send chunks while the windows have room.

        Call it when the loop that froze a topic is committed, because only then are that loop's puts in the store.
        """
        for gift in list(self.gifts.values()):
            if gift.hungry:
                gift.hungry = False
                try:
                    self._pump(gift, now)
                except StoreDamaged as error:
                    self._unreadable(gift.topic, str(error))

    def _pump(self, gift: Gift, now: float) -> None:
        """Send chunks up to the window, and the commit after the last one."""
        while gift.source is not None and gift.total is None and len(gift.unacknowledged) < WINDOW:
            chunk = next(gift.source, None)
            number = gift.acknowledged + len(gift.unacknowledged)
            if chunk is None:
                gift.total = number
            else:
                gift.unacknowledged.append(chunk)
                self._send(gift, "chunk", number, chunk)
        gift.retry_at = now + gift.wait
        if gift.total is not None and not gift.unacknowledged:
            self._send_commit(gift, now)

    # Time

    def tick(self, now: float) -> None:
        """Repeat unanswered messages."""
        for gift in list(self.gifts.values()):
            if now < gift.retry_at:
                continue
            gift.wait = min(gift.wait * 2, RETRY_SECONDS_MAX)
            if gift.state is State.OFFERED:
                if not gift.frozen and gift.tries >= OFFER_TRIES_MAX:
                    del self.gifts[gift.topic]
                else:
                    self._send_offer(gift, now)
                continue
            gift.tries += 1
            gift.retry_at = now + gift.wait
            # The link may be broken, or the address may be another server's by now. Or the receiver has lost its chunks
            # and took a late repeat of the first offer for a new one; it then waits for a chunk that was sent before.
            if gift.tries > OFFER_TRIES_MAX or gift.behind:
                gift.transfer = self._new_id()
                self._send_offer(gift, now)
            elif gift.unacknowledged:
                for index, chunk in enumerate(gift.unacknowledged):
                    self._send(gift, "chunk", gift.acknowledged + index, chunk)
            elif gift.total is not None:
                self._send_commit(gift, now)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        return min((gift.retry_at for gift in self.gifts.values()), default=float("inf"))


def _is_receiver(gift: Gift, server: str) -> bool:
    """Return True if a server asked at `elsewhere` is the receiver of the gift."""
    return server == gift.server or may_be_one_server(gift.elsewhere, gift.address)
