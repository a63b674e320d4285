"""The Pirate patterns in a world of faults; and deliberate mistakes, each of which it must find."""

from __future__ import annotations

import pytest

from pubsub.services.core.interface import Send
from pubsub.services.core.lazy import ReqWire
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.paranoid import ParanoidQueue, ParanoidWorker
from pubsub.services.core.queue import FRONTEND, HEARTBEAT
from tests.services.pirates import BACK, World

SEEDS = range(12)


@pytest.mark.parametrize("kind", ["simple", "paranoid"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_invariants_hold_under_random_faults(kind, seed):
    world = World(seed, kind)
    assert world.judge() == []
    assert world.queue.core.counters["replies"] > 10


class FreedByHeartbeat(ParanoidQueue):
    """A busy worker's heartbeat makes it free."""

    def _from_worker(self, worker, frames, now):
        super()._from_worker(worker, frames, now)
        if list(frames) == [HEARTBEAT] and worker in self._received:
            self._is_ready(worker, now)


class ToWhomeverWaits(ParanoidQueue):
    """A reply goes to the client that has waited for longest."""

    def _replied(self, worker, frames, now):
        if self._busy and len(frames) > 2:
            client = next(iter(self._busy.values()))[0]
            self._busy.pop(worker, None)
            self._sends.append(Send(FRONTEND, client, tuple(frames[1:])))
            self._is_ready(worker, now)


class AlwaysReads(ParanoidQueue):
    """Free workers are given several requests."""

    def _hand_out(self, now):
        worker = next(iter(self._free), None)
        super()._hand_out(now)
        if worker is not None and worker in self._busy:
            self._free[worker] = None


class OldReplies(ParanoidWorker):
    """What was asked before the worker connected anew is answered on the new connection."""

    def start(self, now):
        kept = dict(self._requests)
        super().start(now)
        self._requests.update(kept)


class SameConnection(LockstepCaller):
    """A try that is over goes on over the same connection."""

    def __init__(self, addresses):
        super().__init__(ReqWire(), addresses)

    def _try_over(self, lane, now):
        call = lane.call
        if call is not None and call.tries < call.patience.tries and now < call.ends:
            self._send(lane, call, now)
        elif call is not None:
            super()._try_over(lane, now)
            self._lanes[lane.port] = lane
            lane.call, lane.due = None, float("inf")
            self._sends = [act for act in self._sends if getattr(act, "port", "") != lane.port]
            self._free.append(lane)


MISTAKES = {
    "freed by a heartbeat": {"queue": FreedByHeartbeat},
    "to whomever waits": {"queue": ToWhomeverWaits},
    "always reads": {"queue": AlwaysReads},
    "same connection": {"caller": SameConnection},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_deliberate_mistake_is_found(name):
    found = [flaws for seed in range(20) if (flaws := World(seed, "paranoid", **MISTAKES[name]).judge())]
    assert found, "20 seeds found nothing"


def test_the_queue_drops_a_reply_from_before_too():
    """Two rules keep a late reply from the wrong client: without the worker's the queue's still does."""
    for seed in SEEDS:
        assert World(seed, "paranoid", worker=lambda: OldReplies(BACK)).judge() == []
