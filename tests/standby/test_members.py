"""Two members on real disks: the server's own core, its store, streams, encoded entries, copies by pages.

There are no sockets and no register: the test chooses the primary. The standby is away at times, and the primary's
process ends at any moment; then the other one takes over. Answered changes stay from then on. At the end both stores
are alike, and so is the memory of a server on either.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from pubsub.protocol import Get, Outcome, Subscribe, decode, encode
from pubsub.protocol.batch import Buffer
from pubsub.protocol.messages import Status
from pubsub.protocol.standby import Ack, Copy, Entries, Follow, split_entries
from pubsub.server.group_commit import GroupCommit
from pubsub.server.standby.disk import stream as streams
from pubsub.server.standby.disk.applied import applied_entry, apply_entries
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.standby.disk.pages import PageCopy, install
from pubsub.server.standby.disk.snapshot import Snapshot
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.entries import Entry, received
from pubsub.server.standby.replication.follower import Following
from pubsub.server.standby.replication.primary import Leading
from pubsub.server.storage.store import Store
from tests.server.stage import FailingStore, Reserve, Stage, bodies, put
from tests.simulation.memory import MEMORY_ONLY, _differences
from tests.standby.twins import rows

STREAM_BYTES = 60_000
A, B = "a" * 16, "b" * 16


class Primary(Stage):
    """A server that holds its answers until the standby has their entries."""

    def __init__(self, pair: Pair, directory: Path, in_sync: set[str]) -> None:
        self.pair, self.in_sync = pair, in_sync
        self.held_until = 0
        super().__init__(directory, retention_hold_seconds=13.0)
        self.now = pair.now

    def open(self) -> None:
        install(self.settings.directory)
        self.store = store = FailingStore(self.settings.directory)
        end = applied_entry(store)
        self.stream = Stream(self.settings.directory / "stream", end, bytes_max=STREAM_BYTES)
        end = apply_entries(store, self.stream.staged)
        pair, name = self.pair, self.settings.directory.name
        term = max(int((self.wall + pair.now) * 1000), store.incarnation() + 1)
        self.leading = Leading("s1", "0" * 16, name, term, self.in_sync, end, self.stream, pair.now, 5.0, 9.0)
        self.group_commit = GroupCommit(
            self.settings,
            store,
            Reserve(),
            pair.random,
            pair.now,
            self.wall + pair.now,
            HeldAnswers(self.leading, self.stream, pair.exchange),
        )
        self.core = self.group_commit.core

    def loop(self) -> list[Any]:
        """One loop, as in the process; released answers come by `release`."""
        self.core.tick(self.now)
        self.store.fail = self.fail_commit
        self.group_commit.commit(self.now)
        self.store.fail = False
        out = [one for one, _ in self.group_commit.outgoing(self.now)]
        self.heard(out)
        self.pair.exchange()
        return out

    def heard(self, out: list[Any]) -> None:
        """Sent messages: clients get the answers, and proxies answer their questions."""
        self.sent += out
        self.answer_as_proxies(out)

    def release(self) -> None:
        self.heard([one for one, _ in self.leading.released()])

    def close(self) -> None:
        self.stream.close()
        super().close()


class Standby:
    """A member that follows."""

    def __init__(self, pair: Pair, directory: Path) -> None:
        self.pair, self.directory = pair, directory
        directory.mkdir(exist_ok=True)
        install(directory)
        self.store = Store(directory)
        end = applied_entry(self.store)
        self.stream = Stream(directory / "stream", end, bytes_max=STREAM_BYTES)
        self.core = Following("s1", "0" * 16, directory.name, end, self.stream.staged, pair.random, pair.now, 1.0)

    def hear(self, message: Entries, entries: list[Entry]) -> None:
        self.core.entries(message, entries, self.pair.now)
        write = self.core.to_write()
        if write is not None:
            if write.cut is not None:
                self.stream.cut(write.cut)
            self.stream.append(write.entries, own=False)
            self.core.synced(self.stream.sync())
        while entries := self.core.to_apply():
            self.core.applied_to(apply_entries(self.store, entries))

    def copy(self, begin: Copy, snapshot: Snapshot) -> None:
        """All of a copy at once, now and then given up in the middle."""
        if not self.core.begin_copy(begin.term, begin.token, begin.snapshot):
            return
        copy = PageCopy(self.directory, begin, self.store.db)
        while not copy.complete:
            for answer in snapshot.answers(copy.request("s1", "0" * 16, B), "s1", "0" * 16, A):
                copy.take(answer)
            if self.pair.random.random() < 0.1:
                copy.close()
                self.core.give_up_copy()
                return
        assert self.core.copied(begin.token)
        self.store.close()
        copy.finish()
        if self.pair.random.random() < 0.5:  # Or the process ends here, and the next one finds it.
            install(self.directory)
            self.stream.reset(begin.snapshot)
        self.stream.close()
        self.pair.counts["copies"] += 1
        self.pair.standby = Standby(self.pair, self.directory)

    def close(self) -> None:
        self.stream.close()
        self.store.close()


class Pair:
    """Both, and the knowledge of clients."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.random, self.now = random, 100.0
        self.counts = dict.fromkeys(("copies", "taken over", "full", "puts", "entries"), 0)
        self.directories = [directory / A, directory / B]
        self.away = False
        self.standby: Standby | None = None
        self.primary = Primary(self, self.directories[0], {A})
        self.standby = Standby(self, self.directories[1])
        self.acknowledged = self.tried = self.since = self.number = self.subscribed = 0
        self.position: Any = None
        self.got: list[bytes] = []

    def exchange(self) -> None:
        """The messages of the members to each other, encoded."""
        standby = self.standby
        if standby is None or self.away:
            return
        primary = self.primary
        for message, entries in primary.leading.outgoing():
            head, body = encode(message)
            frames: list[Buffer] = [bytes(part) for entry in entries for part in entry.parts]
            heard = decode(head, body)
            assert isinstance(heard, Entries)
            standby.hear(heard, received(split_entries(heard.body), frames))
            self.counts["entries"] += len(entries)
        for said in standby.core.outgoing(self.now):
            back = decode(*encode(said))
            if isinstance(back, Ack):
                primary.leading.acknowledged(back, self.now)
            elif isinstance(back, Follow):
                primary.leading.followed(back, self.now)

    def beat(self) -> None:
        """A second: heartbeats, and the members in sync; the register chooses each proposal at once."""
        self.now += 1.0
        leading = self.primary.leading
        leading.beat()
        for _ in range(3):
            self.exchange()
        leading.tick(self.now)
        wanted = leading.proposal(self.now)
        if wanted is not None:
            leading.proposed(wanted)
            leading.chosen(wanted)
        copy = leading.to_copy()
        if copy is not None and not self.away and self.standby is not None:
            snapshot = Snapshot(self.primary.store)
            self.standby.copy(snapshot.begin("s1", "0" * 16, A, leading.term, copy[1]), snapshot)
            snapshot.close()

    def take_over(self) -> None:
        """The primary's process ends; the other member takes its place, if it is in sync, or the same starts again."""
        leading, standby = self.primary.leading, self.standby
        assert standby is not None
        other = standby.directory.name in leading.in_sync and self.random.random() < 0.7
        self.primary.close()
        standby.close()
        self.standby = None
        self.counts["taken over"] += other
        if other:
            self.directories.reverse()
        in_sync = {self.directories[0].name} if other else set(leading.in_sync)
        self.now += 1.0
        self.away = False
        self.primary = Primary(self, self.directories[0], in_sync)
        self.standby = Standby(self, self.directories[1])

    # A client of each kind, which repeats its unanswered requests

    def ask(self, message: Any, origin: bytes = b"cX") -> Status | None:
        callback = self.primary.say(message, origin=origin)
        for _ in range(3):
            self.primary.now = self.now
            self.primary.loop()
            self.primary.release()
            if (answer := self.primary.answer(callback)) is not None:
                return answer
        return None

    def put(self) -> None:
        counter = self.tried = self.acknowledged + 1
        body = [b"%d %d " % (counter, n) + b"x" * self.random.choice((1, 100, 40_000)) for n in range(2)]
        answer = self.ask(put("t", counter, body, previous=self.acknowledged))
        if answer is not None and answer.outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}:
            self.acknowledged = counter + 1
            self.counts["puts"] += 1

    def get(self) -> None:
        if not self.subscribed:
            self.number += 1
            answer = self.ask(Subscribe("bob", "t", self.number, self.number))
            if answer is not None and answer.outcome is Outcome.SUCCESS:
                self.subscribed, self.position, self.got = self.number, answer.position, []
                self.since = self.tried + 2 if self.tried else 1  # An earlier try may have been taken then.
            return
        answer = self.ask(Get("bob", "t", self.position, self.subscribed, self.subscribed, records_max=1000))
        assert answer is None or answer.outcome not in {Outcome.BEHIND, Outcome.UNKNOWN, Outcome.GONE}, answer
        if answer is not None and answer.outcome is Outcome.SUCCESS:
            self.got += bodies(answer)
            self.position = answer.message

    def full(self) -> None:
        self.primary.fail_commit = True
        self.put()
        self.primary.fail_commit = self.primary.core.state.full = False
        self.counts["full"] += 1

    def stay_away(self) -> None:
        self.away = not self.away
        if self.away and self.standby is not None and self.random.random() < 0.5:
            self.standby.close()
            self.standby = Standby(self, self.directories[1])

    def settle(self) -> None:
        self.away = False
        for _ in range(40):
            self.beat()
        for _ in range(3):
            self.put()
        for _ in range(60):
            self.get()
        for _ in range(3):
            self.beat()

    def close(self) -> None:
        self.primary.close()
        if self.standby is not None:
            self.standby.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_lives_of_a_pair_lose_no_answered_put(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 100_000)
    random = Random(seed)
    pair = Pair(tmp_path, random)
    steps = [pair.put] * 8 + [pair.get] * 4 + [pair.beat] * 4 + [pair.full, pair.stay_away, pair.stay_away]
    steps.append(pair.take_over)
    for _ in range(250):
        random.choice(steps)()
    pair.settle()
    standby = pair.standby
    assert standby is not None
    assert pair.primary.leading.in_sync == {A, B}
    assert applied_entry(pair.primary.store) == applied_entry(standby.store) == pair.primary.stream.end
    assert rows(pair.primary.store) == rows(standby.store)
    fresh = GroupCommit(pair.primary.settings, standby.store, Reserve(), Random(0), pair.now, 1.7e9 + pair.now).core
    core = pair.primary.core
    found = list(_differences(core.state, fresh.state, MEMORY_ONLY, "", set()))
    waiting = {f"topics[{topic!r}].subscriptions[{who!r}]." for topic, who in core.state.uncommitted._acknowledged}
    assert [line for line in found if not any(line.startswith(one) for one in waiting)] == []
    numbers = [tuple(map(int, body.split(b" ")[:2])) for body in pair.got]
    assert numbers == sorted(set(numbers)), "doubled, or out of order"
    assert {number for number, _ in numbers} >= set(range(pair.since, pair.acknowledged, 2)), "lost"
    pair.close()


@pytest.mark.slow
def test_the_random_lives_of_members_contain_every_event(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    for seed in range(3):
        (tmp_path / f"{seed}").mkdir()
        pair = Pair(tmp_path / f"{seed}", Random(seed))
        steps = [pair.put] * 8 + [pair.beat] * 4 + [pair.full, pair.stay_away, pair.stay_away, pair.take_over]
        for _ in range(200):
            pair.random.choice(steps)()
        for name, count in pair.counts.items():
            counts[name] = counts.get(name, 0) + count
        pair.close()
    assert min(counts.values()) >= 2, counts
