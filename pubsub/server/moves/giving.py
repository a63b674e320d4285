"""Giving a topic to another server: offer, freeze, chunks, commit, delete (docs/architecture.md, *Merge*).

A table, state by what arrives:

    OFFERED   accepted → freeze, durably, and send chunks    done → it was merged before: delete
              moved to X → offer to X                        busy or silence → offer again
              its other member serves → offer to that one
    SENDING   chunk n acknowledged → send on                 all acknowledged → commit
              done → delete, leaving a tombstone             moved to X, unknown → offer again (to X)
              chunk refused → thaw

Each step is a TRANSFER; a refusal is a STATUS. `moves` puts both halves of a transfer together, and sends.

What is learned of other holders when the first chunk has left is said behind a `done`, in a commit that follows it.

Nothing is remembered but that the topic is frozen and for whom: after a crash everything begins with an offer, which
the receiver answers with `done` where it has merged the log already. A topic that is frozen stays so until some server
says it has merged it, or the one it was meant for says it never will. That is so too where it accepts the offer, and
refuses a chunk: it had not merged the log by then, and can merge nothing of which it takes a part only. Where that one
is silent and another address is named, that one is asked: the receiver may have come back there, or somebody may hold
what it had merged. An address
from before the servers had keys leads nowhere, and one with keys leads nowhere once they are gone: the same place with
the server's ID, or without it, is the same receiver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import Buffer
from pubsub.protocol.messages import Outcome, Status, Transfer
from pubsub.protocol.names import may_be_one_server, parse_endpoint

if TYPE_CHECKING:
    from random import Random

WINDOW: Final = 4
"""Chunks on the way at once, which is what a transfer costs in memory on either side."""

RETRY_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 5.0
OFFER_TRIES_MAX: Final = 8
"""Offers without an answer after which a topic that is not frozen is kept; a proxy asks again."""

SILENT_TRIES: Final = 3
"""Tries without an answer after which the receiver may have gone elsewhere."""

REFUSED_SECONDS: Final = 60.0
"""How long a topic of which a receiver refused a chunk is offered to nobody: proxies ask for it every second."""

GIFTS_MAX: Final = 4
"""Topics that are given at the same time; others wait. Those whose receiver is silent are in nobody's way."""


class State(Enum):
    """How far a gift is."""

    OFFERED = "offered"
    SENDING = "sending"


@dataclass(slots=True)
class Gift:
    """A topic on its way.

    Attributes:
        address: of the server it is for.
        server: its ID, once it was heard; from the beginning where its address names it.
        frozen: the address that the topic is frozen for; "" where it is not.
        transfer: the ID of this attempt.
        acknowledged: chunks that the receiver has; all before it.
        unacknowledged: those on the way.
        total: how many there are, once all were made.
        behind: the last answer was for a chunk that the receiver had acknowledged already.
        hungry: whether the window may have room.
        said: the other holders that the first chunk, or the last commit, has named.
        late: those that the commit names.
        question: the ID of an offer to another address, `elsewhere`, than that of the silent receiver; "" for none.
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
        random: for the IDs of transfers.
        freeze: makes a topic frozen, durably, for the server at an address.
        thaw: makes it an ordinary one again.
        chunks: gives the chunks of a frozen topic, in the newest form that the receiver reads.
        given: deletes a topic that the sender of this `done`, at an address, has merged.
        unreadable: told of a topic that cannot be given because the store is damaged there, and why.
        given_up: tells of a log whether it is known here as given up.
        others: names the other holders of a topic that are known here, in one word.
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
    ) -> None:
        self._sender, self._random = sender, random
        self._freeze, self._thaw, self._chunks, self._given = freeze, thaw, chunks, given
        self._unreadable, self._given_up, self._others = unreadable, given_up, others
        self.gifts: dict[str, Gift] = {}
        self._refused: dict[str, float] = {}
        """Topics of which a receiver refused a chunk, and until when they are offered to nobody."""
        self.out: list[tuple[str, Transfer]] = []
        """Address and message, to be sent."""

    def offer(self, topic: str, log: str, address: str, now: float, *, frozen: bool = False) -> bool:
        """Begin to give a topic.

        Args:
            log: its open log.
            frozen: it was frozen in an earlier life.

        Returns:
            False where it is being given already, or too many are, or where a chunk of it was refused lately.
        """
        heard = sum(gift.tries < SILENT_TRIES for gift in self.gifts.values())
        if topic in self.gifts or (not frozen and (heard >= GIFTS_MAX or now < self._refused.get(topic, 0.0))):
            return False
        server = parse_endpoint(address)[0]
        self.gifts[topic] = gift = Gift(topic, address, self._new_id(), log, server, frozen=address if frozen else "")
        self._send_offer(gift, now)
        return True

    def cancel(self, topic: str) -> bool:
        """Withdraw an offer that was not accepted yet; False where the topic is frozen."""
        gift = self.gifts.get(topic)
        if gift is not None and gift.frozen:
            return False
        self.gifts.pop(topic, None)
        return True

    def ask(self, topic: str, address: str) -> None:
        """Where the receiver of a frozen topic is silent, see whether it is at this address now.

        Only the server that was offered the topic may be given it, since it may have merged it and not been heard; but
        whoever says that it has the log ends the matter.
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
        # Every step names the log, so that a receiver which has merged that log can say so at any step.
        message = Transfer(self._sender, gift.topic, step, gift.transfer, chunk, gift.log, body)
        self.out.append((gift.address, message))

    # Answers

    def answered(self, message: Transfer, now: float) -> None:
        """The receiver's next step."""
        gift = self.gifts.get(message.topic)
        if gift is not None and gift.question == message.transfer:
            self._answered_elsewhere(gift, message, now)
            return
        if gift is None or gift.transfer != message.transfer:
            return
        if message.step == "accepted" and not gift.frozen and self._given_up(message.log):
            # The receiver has not heard yet that the log it holds was given up, and would set this topic aside with
            # that log. The topic is offered again a little later, as to a receiver that has not answered.
            return
        gift.tries, gift.wait, gift.server = 0, RETRY_SECONDS, message.sender
        if message.step == "done":
            self._done(gift, message, now)
        elif message.step == "accepted" and gift.state is State.OFFERED:
            # Also where it was frozen for another one, which sent it on to this one: who may merge it is remembered.
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
            if not gift.behind:  # No chunk that could be sent helps a receiver that is behind: `tick` begins anew.
                gift.hungry, gift.retry_at = True, now + gift.wait

    def _done(self, gift: Gift, message: Transfer, now: float) -> None:
        """The receiver has merged it: the topic is deleted here, when the receiver knows what was learned meanwhile."""
        others = self._others(gift.topic)
        if not gift.frozen or others in {"", gift.said}:
            del self.gifts[gift.topic]
            self._given(gift.topic, message, gift.address)
            return
        # Under another ID, so that a late `done` to what was sent before is not taken for the answer to this.
        gift.transfer, gift.said, gift.late = self._new_id(), others, others
        gift.state, gift.source, gift.total = State.SENDING, None, 0
        gift.unacknowledged.clear()
        self._send_commit(gift, now)

    def _send_commit(self, gift: Gift, now: float) -> None:
        assert gift.total is not None
        self._send(gift, "commit", gift.total, gift.late.encode("ascii"))
        gift.retry_at = now + gift.wait

    def refused(self, topic: str, transfer: str, status: Status, now: float) -> str:
        """The receiver's answer where it is not the next step.

        MOVED: it is giving the topic away itself, to the server named; the log was not merged and will not be.
        DEPOSED: its other member serves, at the address named. UNKNOWN: it does not know this transfer (any more).
        GONE: the log was given up, so it takes it never; a topic that is frozen is nobody else's to take, and is to be
        set aside. REFUSED, of a chunk: it takes nothing of it, and each further try would end so. Anything else: later.

        Returns:
            The open log of a frozen topic, where the receiver says that this very log was given up; else "".
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
        elif status.outcome is Outcome.REFUSED and gift.unacknowledged:  # No commit was sent since it accepted.
            self._refused = {one: until for one, until in self._refused.items() if now < until}
            self._refused[topic] = now + REFUSED_SECONDS
            del self.gifts[topic]
            self._thaw(topic)
        return ""

    def _replaced(self, gift: Gift, status: Status, now: float) -> None:
        """The receiver's other member serves. Where that one is silent by now too, this one may be asked again."""
        gift.server = gift.server or status.sender
        if gift.frozen:
            self._ask_elsewhere(gift, status.reason)
        else:
            gift.address, gift.transfer = status.reason, self._new_id()
            self._send_offer(gift, now)

    def _crossed(self, gift: Gift, status: Status) -> None:
        """Each of the two waits for the other: the topic is frozen there for this server.

        Who has not frozen the topic withdraws the offer, or else the one with the lower ID takes the topic back; and
        then accepts.
        """
        if self._sender < status.sender or not gift.frozen:
            del self.gifts[gift.topic]
            if gift.frozen:
                self._thaw(gift.topic)

    def pump(self, now: float) -> None:
        """Read and send what there is room for.

        To be called when the loop that froze a topic is committed: what it still put is only then in the store.
        """
        for gift in list(self.gifts.values()):
            if gift.hungry:
                gift.hungry = False
                try:
                    self._pump(gift, now)
                except StoreDamaged as error:
                    self._unreadable(gift.topic, str(error))

    def _pump(self, gift: Gift, now: float) -> None:
        """Send chunks up to the window, and the commit behind the last one."""
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
        """Repeat what was not answered."""
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
            # The link may be gone for good, or the address another server's by now. Or the receiver lost what it had,
            # and took a late repeat of the first offer for a new one: then it waits for a chunk that is not sent again.
            if gift.tries > OFFER_TRIES_MAX or gift.behind:
                gift.transfer = self._new_id()
                self._send_offer(gift, now)
            elif gift.unacknowledged:
                for index, chunk in enumerate(gift.unacknowledged):
                    self._send(gift, "chunk", gift.acknowledged + index, chunk)
            elif gift.total is not None:
                self._send_commit(gift, now)

    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min((gift.retry_at for gift in self.gifts.values()), default=float("inf"))


def _is_receiver(gift: Gift, server: str) -> bool:
    """Whether a server that was asked elsewhere is the one that the topic is for."""
    return server == gift.server or may_be_one_server(gift.elsewhere, gift.address)
