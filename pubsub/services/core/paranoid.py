"""Paranoid Pirate: a queue and workers that watch each other (ZeroMQ RFC 6, https://rfc.zeromq.org/spec/6/).

    worker -> queue   [01]                              READY, its first message
    both ways         [02]                              HEARTBEAT
    queue -> worker   [client][""][body…]               a request, and the same back with the reply's body

Each side sends a heartbeat every second, and counts the other as dead after three seconds of silence. Any message
counts as a heartbeat. A worker with a dead queue reconnects after 1 s, then 2 s, up to 32 s, until a message comes. A
heartbeat does not mean that a worker is free: a busy worker sends it too. `heartbeats` describes workers at queues with
another interval, and workers that stood still.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.services.core.heartbeats import Heartbeats
from pubsub.services.core.interface import BaseCore, Dial, Frames, HangUp, Noticed, Requested, Send
from pubsub.services.core.queue import BACKEND, HEARTBEAT, READY, PirateQueue

HEARTBEAT_SECONDS: Final = 1.0
LIVENESS: Final = 3
BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 32.0

REQUESTS_MAX: Final = 1_000
"""Requests that a worker holds without a reply. A queue sends one at a time."""

_PORT: Final = "queue"
_HEARTBEAT: Final = (HEARTBEAT,)


class ParanoidQueue(PirateQueue):
    """The queue.

    Args:
        name: name of the service, for rights.
        heartbeat_seconds: interval between heartbeats.
        liveness: silent intervals after which a worker counts as dead.
    """

    def __init__(
        self, name: str = "queue", heartbeat_seconds: float = HEARTBEAT_SECONDS, liveness: int = LIVENESS
    ) -> None:
        super().__init__(name)
        self._interval, self._patience = heartbeat_seconds, heartbeat_seconds * liveness
        self._received: dict[bytes, float] = {}
        """Worker -> time of its last message, the longest silence first."""
        self._beat_at = 0.0

    def _from_worker(self, worker: bytes, frames: Sequence[bytes], now: float) -> None:
        received = self._received
        known = received.pop(worker, None) is not None
        first = frames[0]
        if len(frames) == 1 and first == HEARTBEAT:
            if known:  # Nearly all messages are heartbeats, so they cost one dictionary entry only.
                received[worker] = now
            else:
                self.counters["strangers"] += 1
        elif len(frames) == 1 and first == READY:
            if not received:
                self._beat_at = now + self._interval
            received[worker] = now
            if not known:
                self.counters["workers_came"] += 1
            self._is_ready(worker, now)
        elif known:
            received[worker] = now
            self._replied(worker, frames, now)
        else:
            self.counters["strangers"] += 1

    def _request(self, client: bytes, body: Frames) -> Frames:
        return (client, b"", *body)

    def _usable(self, worker: bytes, now: float) -> bool:
        return now - self._received[worker] < self._patience

    def _forget(self, worker: bytes) -> None:
        super()._forget(worker)
        self._received.pop(worker, None)

    def timer(self) -> float | None:
        """Time of the next heartbeats, which leave together. Silent workers are removed at the same time."""
        due = super().timer()
        if not self._received:
            return due
        return self._beat_at if due is None else min(due, self._beat_at)

    def tick(self, now: float) -> None:
        """Remove silent workers, and send heartbeats."""
        super().tick(now)
        if not self._received or now < self._beat_at:
            return
        self._beat_at = now + self._interval
        silent = []
        for worker, received in self._received.items():
            if now - received < self._patience:
                break
            silent.append(worker)
        for worker in silent:
            if worker in self._busy:
                self.counters["requests_dropped"] += 1
            self._forget(worker)
        if silent:
            self.counters["workers_silent"] += len(silent)
            self._events.append(Noticed(f"{len(silent)} workers are silent and get no more work"))
        self._sends += [Send(BACKEND, worker, _HEARTBEAT) for worker in self._received]

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Ignore a heartbeat that found a full queue; handle other messages as the base class does."""
        if send.port == BACKEND and not gone and send.frames is _HEARTBEAT:
            return
        super().undelivered(send, now, gone=gone)


class ParanoidWorker(BaseCore):
    """A worker of such a queue. A `WorkerCore`.

    Args:
        address: of the queue's backend.
        heartbeat_seconds, liveness: as at the queue.
    """

    def __init__(self, address: str, heartbeat_seconds: float = HEARTBEAT_SECONDS, liveness: int = LIVENESS) -> None:
        super().__init__()
        self._address = address
        self._heartbeats = Heartbeats(heartbeat_seconds, liveness)
        self._backoff = BACKOFF_SECONDS
        self._token = 0
        self._requests: dict[int, tuple[bytes, list[bytes]]] = {}
        """Token -> client, and parts of the reply that are kept for its end."""
        self._dial_at: float | None = None
        """Time of the next connect; None: the worker has a connection."""

    def start(self, now: float) -> None:
        """Connect, and send READY."""
        self._requests.clear()  # The queue of the new connection did not send them, or has given them up.
        self._dial_at = None
        self._heartbeats.begin(now)
        self._sends += [Dial(_PORT, self._address), Send(_PORT, b"", (READY,))]

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """Take a request or a heartbeat; any message shows that the queue is alive."""
        if self._dial_at is not None or self._stood_still(now):
            return
        self._backoff = BACKOFF_SECONDS
        if len(frames) == 1 and frames[0] == HEARTBEAT:
            if self._heartbeats.heard_beat(now):
                self._beat(now)
            return
        due = self._heartbeats.received(now)
        if len(frames) < 3 or frames[1] or not frames[0]:
            self.counters["undecodable"] += 1
            return
        if len(self._requests) >= REQUESTS_MAX:
            self.counters["requests_dropped"] += 1
            return
        if due:
            self._beat(now)
        self._token += 1
        self._requests[self._token] = frames[0], []
        self.counters["requests"] += 1
        self._events.append(Requested(self._token, tuple(frames[2:])))

    def _beat(self, now: float) -> None:
        self._say(_HEARTBEAT, now)

    def _say(self, frames: Frames, now: float) -> None:
        self._heartbeats.said = now
        self._sends.append(Send(_PORT, b"", frames))

    def _stood_still(self, now: float) -> bool:
        """Reconnect if this worker was paused for so long that the queue has given it up. Return whether it was."""
        seconds = 0.0 if self._requests else self._heartbeats.stood_still(now)
        if seconds:
            self.counters["stood_still"] += 1
            self._give_up_queue(f"this worker was paused for {seconds:.3g} s", now)
        return seconds > 0

    def ended(self, port: str, now: float) -> None:
        if self._dial_at is None:
            self._give_up_queue("the connection to the queue ended", now)

    def _give_up_queue(self, why: str, now: float) -> None:
        self._dial_at = now + self._backoff
        self.counters["queues_given_up"] += 1
        self._events.append(Noticed(f"{why}: {self._address} is tried again in {self._backoff:g} s", warning=True))
        self._backoff = min(2 * self._backoff, BACKOFF_SECONDS_MAX)
        self._sends.append(HangUp(_PORT))

    def timer(self) -> float | None:
        """Time of the next heartbeat, of the queue's death by silence, or of the next connect."""
        return self._heartbeats.due(busy=bool(self._requests)) if self._dial_at is None else self._dial_at

    def tick(self, now: float) -> None:
        if self._dial_at is not None:
            if now >= self._dial_at:
                self.start(now)
        elif self._stood_still(now):  # Messages of the queue may still be unread.
            return
        elif not self._requests and (seconds := self._heartbeats.silent(now)):
            self._heartbeats.give_up()
            self._give_up_queue(f"the queue has been silent for {seconds:.3g} s", now)
        elif self._heartbeats.beat_due(now):
            self._beat(now)

    def reply(self, token: int, body: Frames, now: float) -> None:
        client, parts = self._requests.pop(token, (b"", []))
        if not client:
            self.counters["replies_dropped"] += 1
            return
        frames = (*parts, *body) or (b"",)
        if not self._requests:
            self._heartbeats.idle(now)
        self._say((client, b"", *frames), now)
        self.counters["replies"] += 1

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Keep a part of the reply for `reply`: the wire has no parts."""
        if token in self._requests:
            self._requests[token][1].extend(body)

    def fail(self, token: int, reason: str, now: float) -> None:
        """Send READY for the next request: the wire has no error reply."""
        if self._requests.pop(token, None) is not None:
            self.counters["failed"] += 1
            if not self._requests:
                self._heartbeats.idle(now)
            self._say((READY,), now)
