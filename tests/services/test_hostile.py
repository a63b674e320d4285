"""Random and hostile frames at each port of each core: nothing is raised, nothing grows, others keep their service.

A core that is added stands in CORES with frames of its protocol, which are mixed and cut for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.services.core.binary_star.caller import StarCaller
from pubsub.services.core.binary_star.paired import PEER, Paired, PairedServer
from pubsub.services.core.binary_star.states import Role
from pubsub.services.core.freelance.one_at_a_time import OneAtATime
from pubsub.services.core.freelance.servers import SequencedServer, TrackedServer
from pubsub.services.core.freelance.shotgun import Shotgun
from pubsub.services.core.freelance.tracked import Tracked
from pubsub.services.core.interface import Act, Dial, HangUp, Patience, Requested, Send
from pubsub.services.core.lazy import ReplyServer, lazy_caller
from pubsub.services.core.paranoid import ParanoidQueue, ParanoidWorker
from pubsub.services.core.queue import BACKEND, FRONTEND, HELD_SECONDS
from pubsub.services.core.simple import SimpleQueue, SimpleWorker

ADDRESS = "tcp://a:1"
PEERS = [b"\0a", b"\0b", b"\0c"]
WORDS = [b"", b"\x01", b"\x02", b"\x03", b"1", b"\xff" * 300, b"\0a", b"\0b"]


class Case(NamedTuple):
    """A core, its ports, and words of its protocol.

    Attributes:
        routed: whether messages at a port have a peer.
        idle: sizes of what it holds, by name, which must end at 0 when all is over; None: not looked at.
    """

    make: Callable[[], Any]
    ports: tuple[str, ...]
    routed: bool
    words: tuple[bytes, ...] = ()
    idle: Callable[[Any], int] | None = None


CORES = {
    "lazy caller": Case(lambda: lazy_caller([ADDRESS]), ("lane 1", "lane 2", "lane 9"), False),
    "lazy server": Case(ReplyServer, ("requests",), True),
    "simple queue": Case(SimpleQueue, (FRONTEND, BACKEND), True, idle=lambda core: len(core._held)),
    "simple worker": Case(lambda: SimpleWorker(ADDRESS), ("queue",), False),
    "paranoid queue": Case(
        ParanoidQueue,
        (FRONTEND, BACKEND),
        True,
        idle=lambda core: len(core._held) + len(core._received) + len(core._free) + len(core._busy),
    ),
    "paranoid worker": Case(lambda: ParanoidWorker(ADDRESS), ("queue",), False),
    "freelance 1 caller": Case(lambda: OneAtATime([ADDRESS] * 2), ("lane 1", "lane 2", "lane 9"), False),
    "freelance 2 caller": Case(
        lambda: Shotgun([ADDRESS] * 2), ("server 1", "server 2"), False, (b"", b"2"), lambda core: len(core._calls)
    ),
    "freelance 2 server": Case(SequencedServer, ("requests",), True, (b"", b"queue")),
    "freelance 3 caller": Case(
        lambda: Tracked([ADDRESS] * 2), ("server 1", "server 2"), False, (b"PONG", b"2"), lambda core: len(core._calls)
    ),
    "freelance 3 server": Case(TrackedServer, ("requests",), True, (b"PING", b"2")),
    "star caller": Case(lambda: StarCaller([ADDRESS] * 2), ("lane 1", "lane 2", "lane 9"), False),
    "paired server": Case(
        lambda: PairedServer(Role.PRIMARY, ReplyServer), (PEER, "requests"), True, (b"", b"2", b"3", b"4")
    ),
    "paired queue": Case(
        lambda: Paired(Role.BACKUP, ParanoidQueue), (PEER, FRONTEND, BACKEND), True, (b"", b"1", b"3", b"4")
    ),
}

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("receive"),
            st.integers(0, 9),
            st.sampled_from(PEERS),
            st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=9)), min_size=1, max_size=8),
        ),
        st.tuples(st.just("wait"), st.floats(0.0, 4.0)),
        st.tuples(st.just("undelivered"), st.booleans()),
        st.tuples(st.just("use"), st.integers(0, 5)),
        st.tuples(st.just("ended"), st.integers(0, 9)),
        st.tuples(st.just("refused"), st.integers(0, 9), st.sampled_from(["", "no key"])),
    ),
    max_size=40,
)


class Driven:
    """A core that anything happens to."""

    def __init__(self, case: Case) -> None:
        self.case, self.core, self.now = case, case.make(), 0.0
        self.last: Send | None = None
        self.tokens: list[int] = []
        self.calls = 0
        self.core.start(0.0)
        self.look()

    def look(self) -> None:
        for act in self.core.take_sends():
            self.check(act)
        for event in self.core.take_events():
            if isinstance(event, Requested):
                self.tokens.append(event.token)

    def check(self, act: Act) -> None:
        if isinstance(act, Send):
            assert act.frames
            assert all(isinstance(frame, bytes) for frame in act.frames)
            assert isinstance(act.peer, bytes)
            self.last = act
        else:
            assert isinstance(act, Dial | HangUp)

    def do(self, step: tuple[Any, ...]) -> None:
        core, ports = self.core, self.case.ports
        if step[0] == "receive":
            port = ports[step[1] % len(ports)]
            peer = step[2] if self.case.routed else b""
            core.asked(port, step[3])
            core.reads(port)
            core.receive(port, peer, step[3], self.now)
        elif step[0] == "wait":
            self.now += step[1]
            if (due := core.timer()) is not None and due <= self.now:
                core.tick(self.now)
        elif step[0] == "undelivered" and self.last is not None:
            core.undelivered(self.last, self.now, gone=step[1])
        elif step[0] == "use":
            self.use(step[1])
        elif step[0] == "ended":
            core.ended(ports[step[1] % len(ports)], self.now)
        elif step[0] == "refused":
            core.refused(ports[step[1] % len(ports)], step[2], self.now)
        self.look()

    def use(self, what: int) -> None:
        core = self.core
        if hasattr(core, "call"):
            if what < 4:
                self.calls += 1
                core.call(self.calls, "echo", (b"x",), Patience(1.0, 2), self.now)
            else:
                core.cancel(self.calls, self.now)
        elif hasattr(core, "reply"):
            token = self.tokens.pop() if self.tokens and what else 10**6
            {0: core.reply, 1: core.reply, 2: core.reply, 3: core.reply_part}.get(what, core.reply)(
                token, (b"x",), self.now
            ) if what < 4 else core.fail(token, "why", self.now)


@pytest.mark.parametrize("name", CORES)
@settings(max_examples=3 * settings().max_examples // 2)
@given(steps=STEPS, data=st.data())
def test_arbitrary_messages_raise_nothing_and_cost_no_memory(name, steps, data):
    case = CORES[name]
    driven = Driven(case)
    for step in steps:
        own = step[0] == "receive" and case.words and data.draw(st.booleans())
        driven.do((*step[:3], [data.draw(st.sampled_from(case.words)), *step[3]]) if own else step)
    for _ in range(int(3 * HELD_SECONDS)):
        driven.do(("wait", 1.0))
    if case.idle is not None:
        assert case.idle(driven.core) == 0


@pytest.mark.parametrize("name", CORES)
@settings(max_examples=60)
@given(steps=STEPS)
def test_a_served_timer_moves_on(name, steps):
    """Else the shell would spin."""
    driven = Driven(CORES[name])
    for step in steps:
        driven.do(step)
        for _ in range(200):
            due = driven.core.timer()
            if due is None or due > driven.now:
                break
            driven.core.tick(driven.now)
            driven.look()
        else:
            raise AssertionError(f"due at {due} for ever; it is {driven.now}")
