"""A ServerCore on a real store, driven as by the process: messages of proxies go in, and ones to them come out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from pubsub.base.limits import NUMBER_MAX
from pubsub.config.settings import ServerSettings
from pubsub.errors import StoreFull
from pubsub.protocol import Get, Message, Outcome, Position, Put, Records, Status, Subscribe, Unsubscribe, encode_batch
from pubsub.protocol.bodies import join_topics
from pubsub.protocol.messages import Periodic
from pubsub.protocol.transfers import Owners
from pubsub.server.group_commit import GroupCommit
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import Origin, Outgoing
from pubsub.server.storage.store import Store
from pubsub.server.topic.commits import Commit

WALL = 1_700_000_000.0
PROXIES = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
STORE = "0123456789abcdef"
"""A client's store ID."""


def settings(directory: Path, **changed: Any) -> ServerSettings:
    return ServerSettings(**{"id": "s1", "proxies": PROXIES, "directory": directory, **changed})


def hear_everything(proxies: Proxies, change: int = NUMBER_MAX) -> None:
    """Confirm all announcements up to a change number, as if by every proxy."""
    for proxy in proxies.all:
        proxy.durable = change


class Reserve:
    """No reserve: nothing here needs the disk to be full."""

    size = 0

    def make(self) -> bool:
        return True

    def release(self) -> None:
        return


class FailingStore(Store):
    """A store that raises on each commit, as on a full disk, while `fail` is set."""

    fail = False

    def commit(self) -> None:
        if self.fail:
            raise StoreFull(str(self.path), "no space, says the test")
        super().commit()


class Stage:
    """A server with proxies that answer every question by "no other holder" unless a test changes that.

    Time moves only by `sleep`; messages are handled together until `loop`.
    """

    def __init__(self, directory: Path, **changed: Any) -> None:
        self.settings = settings(directory, **changed)
        self.now = 100.0
        self.wall = WALL - self.now
        """The wall clock when `now` is 0."""
        self.sole_owner: bool | None = True
        """The answer of proxies to WHOLE: True: other holders are `others`; False: unknown; None: no answer."""
        self.others = ""
        self.since = 0
        """The time since which every store has announced all its topics, in those answers."""
        self.patterns: str | None = None
        """The digest of the proxies' patterns in those answers; None: they know the same patterns as the server."""
        self.denied = b""
        """The end of those answers: subscribers of patterns, each with topics that it may not get."""
        self.proxies_behind: float | None = 0.0
        """Seconds by which the clocks of proxies are behind; None: they have not told them."""
        self.other_defaults = ""
        """The servers with other defaults, in the proxies' answers to WHOLE."""
        self.confirms = False
        """Whether proxies answer announcements."""
        self.hears = True
        """Whether announcements count as known to all proxies, though none answers."""
        self.fail_commit = False
        """Whether commits find the disk full."""
        self.sent: list[Outgoing] = []
        self.commits: list[Commit] | None = None
        """The commits, if a test asks for them."""
        self._callback = 1000
        self.open()

    @staticmethod
    def settings_of(directory: Path, **changed: Any) -> ServerSettings:
        """Settings of a server on this directory."""
        return settings(directory, **changed)

    def open(self) -> None:
        self.store = FailingStore(self.settings.directory, bytes_max=self.settings.store_bytes_max)
        self.group_commit = GroupCommit(
            self.settings,
            self.store,
            Reserve(),
            Random(f"{self.settings.id} {self.now}"),
            self.now,
            self.wall + self.now,
        )
        self.core = self.group_commit.core
        if self.proxies_behind is not None:
            for proxy in self.core.proxies.all:
                proxy.clock = self.wall - self.proxies_behind
        if self.hears:
            hear_everything(self.core.proxies)
            self.core.unconfirmed.confirmed()

    def close(self) -> None:
        self.store.close()

    def restart(self) -> None:
        """Restart as after a crash: only committed changes are left."""
        self.close()
        self.open()

    # One loop

    def say(self, message: Message, *, proxy: int = 0, origin: bytes = b"cX", callback: int | None = None) -> int:
        """Hand a message to the core; returns the callback that its answer will name."""
        self._callback += 1
        callback = self._callback if callback is None else callback
        self.core.handle(Origin(proxy, origin, callback), message, self.now)
        return callback

    def loop(self) -> list[Outgoing]:
        """Commit and send, as the process does; questions to proxies are answered in the next loops."""
        self.core.tick(self.now)
        self.store.fail = self.fail_commit
        committed = self.group_commit.commit(self.now)
        if committed is not None and self.commits is not None:
            self.commits.append(committed)
        self.store.fail = False
        sent = self.core.outgoing(self.now)
        self.sent += sent
        self.answer_as_proxies(sent)
        return sent

    def answer_as_proxies(self, sent: list[Outgoing]) -> None:
        """Answer the messages to proxies as proxies do."""
        for out in sent:
            if isinstance(out.message, Owners) and self.sole_owner is not None:
                answer = Status("p", Outcome.UNAVAILABLE, reason="servers_name_different_proxies")
                if self.sole_owner:
                    others = dict.fromkeys(out.message.topics or {}, self.others)
                    known = self.core.patterns.known
                    patterns = (known.digest if known else "") if self.patterns is None else self.patterns
                    body = join_topics(others) + self.denied
                    answer = Status("p", Outcome.SUCCESS, body=body, since=self.since, patterns=patterns)
                    answer.defaults = self.other_defaults
                self.say(answer, proxy=int(out.link), origin=b"", callback=out.source)
            elif isinstance(out.message, Periodic) and self.confirms:
                answer = Status("p", Outcome.SUCCESS, change=out.message.change)
                self.say(answer, proxy=int(out.link), origin=b"", callback=0)

    def answer(self, callback: int) -> Status | None:
        """The answer to a request, if there is one; the answer is removed."""
        for index, out in enumerate(self.sent):
            if out.destination == callback and isinstance(out.message, Status):
                del self.sent[index]
                return out.message
        return None

    def answered(self, callback: int) -> Status:
        """The answer to a request; the answer is removed."""
        answer = self.answer(callback)
        assert answer is not None, "not answered"
        return answer

    def ask(self, message: Message, **where: Any) -> Status:
        """Say it, and loop until it is answered."""
        callback = self.say(message, **where)
        for _ in range(20):
            self.loop()
            answer = self.answer(callback)
            if answer is not None:
                return answer
        raise AssertionError(f"no answer to {message}")

    def sleep(self, seconds: float) -> None:
        """Let time pass, with a loop at each deadline of the core."""
        until = self.now + seconds
        for _ in range(10_000):
            self.now = min(until, max(self.now, self.core.deadline()))
            self.loop()
            if self.now >= until and self.core.deadline() > self.now:
                return
        raise AssertionError(f"the core always has something to do: {self.core.deadline()} at {self.now}")

    def stamp(self) -> int:
        """The server's clock, microseconds since 1970."""
        return self.core.state.stamps.reading(self.now)

    # Requests

    def subscribe(self, who: str, topic: str, number: int, epoch: int | None = None) -> Status:
        return self.ask(Subscribe(who, topic, number, number if epoch is None else epoch))

    def unsubscribe(self, who: str, topic: str, number: int, epoch: int | None = None) -> Status:
        return self.ask(Unsubscribe(who, topic, number, number if epoch is None else epoch))

    def put(self, topic: str, counter: int, bodies: Sequence[bytes] = (b"x",), **more: Any) -> Status:
        return self.ask(put(topic, counter, bodies, **more))

    def get(self, who: str, topic: str, last: Position | None, number: int, **more: Any) -> Status:
        more.setdefault("epoch", number)
        more.setdefault("records_max", 1000)
        return self.ask(Get(who, topic, last, number, **more))

    def periodics(self) -> list[Periodic]:
        """Announcements sent so far, taken out."""
        found = [out.message for out in self.sent if isinstance(out.message, Periodic)]
        self.sent = [out for out in self.sent if not isinstance(out.message, Periodic)]
        return found


def put(topic: str, counter: int, bodies: Sequence[bytes] = (b"x",), **more: Any) -> Put:
    body = encode_batch(bodies, more.pop("keys", ()), more.pop("headers", ()))
    more.setdefault("sender", "alice")
    more.setdefault("previous", 0)
    facts = {"topic": topic, "counter": counter, "publisher": STORE, "count": len(bodies), "checksum": crc32(body)}
    return Put(body=body, **facts, **more)


def bodies(status: Status) -> list[bytes]:
    """The records of an answer."""
    assert status.outcome is Outcome.SUCCESS, status
    assert crc32(status.body) == status.checksum
    records = list(Records(bytes(status.body)).bodies())
    assert len(records) == status.records
    return records
