"""The server's own core behind the names of the reference, so that the same members run against both."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pubsub.protocol import Status
from pubsub.protocol.groups import Work
from tests.client.groups.reference import Key, Reference
from tests.server.groups.workers import GROUP, Worker, act, facts, fill, log_of
from tests.server.stage import Stage, put

LIVENESS_SECONDS = 3.0


class RealServer(Reference):
    """One group on the core of a server, with its store on the disk.

    Args:
        parts: 0: it is shared.
    """

    def __init__(self, parts: int) -> None:
        super().__init__(parts)
        self._directory = tempfile.TemporaryDirectory()
        self.stage = Stage(Path(self._directory.name))
        fill(self.stage, 1, 1)
        self.keys.append(b"")
        worker = Worker(self.stage, "maker")
        worker.subscribe("keyed" if parts else "shared", parts=parts)
        self.name, self.number, self.log = GROUP, worker.subscription, log_of(self.stage)
        self._told = 0.0

    def close(self) -> None:
        self.stage.close()
        self._directory.cleanup()

    def __repr__(self) -> str:
        return str(facts(self.stage))

    def is_idle(self) -> bool:
        found = facts(self.stage)
        return not any(found[name] for name in ("waiting", "offered", "claimed", "delayed"))

    def dead(self) -> set[int]:
        return {int(one["id"].split(".")[1]) for one in facts(self.stage, "dead")["dead"]}

    def members(self) -> list[Key]:
        return [(one["client"], one["store"]) for one in facts(self.stage, "members")["members"]]

    def put(self, key: bytes) -> int:
        self.keys.append(key)
        number = len(self.keys)
        self.stage.ask(put("t", number, (b"%d" % number,), keys=(key,), sender="alice"))
        return number

    def skip(self) -> None:
        self.put(b"")

    def crash(self) -> None:
        self.stage.restart()

    def silent(self, key: Key) -> None:
        self.stage.sleep(LIVENESS_SECONDS + 1.0)

    def release(self, key: Key) -> None:
        for one in facts(self.stage, "members")["members"]:
            if (one["client"], one["store"]) == key and one["claimed"]:
                for text in one["ranges"]:
                    low, high = text.split(".")[1].split(":")[0].split("-")
                    self.released |= set(range(int(low), int(high)))
                act(self.stage, "release", self.number, member=key[0], store=key[1], number=one["number"], force=1)

    def work(self, m: Work, now: float, *, dies: bool = False) -> Status | None:
        if now > self._told:
            self.stage.sleep(min(0.3, now - self._told) if self._told else 0.0)
            self._told = now
        if m.wait_ms:
            m.wait_ms = 0  # The network of the test holds messages itself.
        answer = self.stage.ask(m, origin=m.sender.encode())
        if dies:
            self.stage.restart()
            return None
        return answer
