"""Damaged stores by the commands: `pubsub server check` of each, beside the acts of a server and clients on it.

    .venv/bin/python -m tests.faults.damaged_rounds --count 30

Each seed damages a copy of a store (`tests.server.damages`; every second one as environments do, `tests.mishaps`). It
is checked, and a server is started on it, beside a sound server whose topic is put to and read all the time. Then a
client subscribes to each topic of the damaged one, takes all that is there, and puts; all of it by commands.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pubsub.cli import main
from tests.faults.cluster import Cluster, Process, until
from tests.server.damages import TOPICS, Made, damage, mishap, workshop

SOUND = "sound"
PATIENCE_SECONDS = 300.0
"""For a process that starts on a machine that is busy otherwise."""

REFUSED = {17, 19}
"""Exit codes of `check` of stores on which no server starts."""

NONE, STORAGE, TOLD = 3, 7, 11
"""Exit codes: there is no message; the disk; a loss was told."""


@dataclass
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


def run(*words: str) -> Ran:
    """Run a command of ours to its end, in this process: interpreters that start are what most of the time goes to."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = [os.dup(1), os.dup(2)]
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = main(list(words))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            for number, stream in zip((1, 2), kept, strict=True):
                os.dup2(stream, number)
                os.close(stream)
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    return Ran(code, *printed)


class Round:
    """One damaged store.

    Args:
        cluster: has one proxy, and a sound server with a topic of its own.
        place: of the damaged store.
    """

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self._cluster, self._place = cluster, place
        self._clients = cluster.directory / "clients"
        self._sound = 0

    def client(self, name: str, *words: str) -> Ran:
        """A command of a client."""
        where = ("--proxy", self._cluster.addresses[0], "--dir", str(self._clients), "--timeout-seconds", "20")
        return run("client", name, *words, *where)

    def sound(self) -> list[str]:
        """Put to the sound server's topic, and take it; what was wrong."""
        self._sound += 1
        message = self._cluster.directory / "message"
        message.write_text(f"{self._sound}", encoding="ascii")
        put = self.client("writer", "put", SOUND, str(message))
        got = self.client("reader", "get", SOUND, "--wait", "10")
        if (put.code, got.code, got.out.strip()) != (0, 0, f"{self._sound}"):
            return [f"{SOUND} was not served: {put}, {got}"]
        return []

    def compared(self) -> tuple[int, list[str]]:
        """The exit code of `check`, and where the processes did something else."""
        assert self.client("reader", "subscribe", SOUND, "--fresh").code == 0
        check = run("server", "check", "--dir", str(self._place), "--json")
        if check.code not in {0, 16, 17, 18, 19}:
            return check.code, [f"check: {check}"]
        server = self._cluster.server("s1", data=self._place)
        starts = self._starts(server)
        out = self.sound()
        if starts is (check.code in REFUSED):
            return check.code, [*out, f"check ends with {check.code}, the server {'starts' if starts else 'does not'}"]
        if not starts:
            text = server.errors.read_text()
            if server.wait(PATIENCE_SECONDS) != STORAGE or text.count("\n") != 1 or "Traceback" in text:
                out.append(f"the server ended with {server.wait()}: {text}")
            return check.code, out
        facts = json.loads(check.out)
        said = {topic["topic"]: topic for topic in facts["topics"] if not topic["quarantined"]}
        for topic in TOPICS:
            if topic in said:
                out += self._topic(topic, said[topic], whole=not facts["problems"])
        out += self.sound()
        if server.running.poll() is not None:
            out.append(f"the server ended with {server.wait()}: {server.errors.read_text()[-500:]}")
        return check.code, out

    def _starts(self, server: Process) -> bool:
        word = "server s1 ready"
        until(
            lambda: server.lines(word) or server.running.poll() is not None,
            "the server starts, or ends",
            PATIENCE_SECONDS,
        )
        return bool(server.lines(word))

    def _topic(self, topic: str, said: dict[str, object], *, whole: bool) -> list[str]:
        records, told = 0, 0
        got = self.client("bob", "subscribe", topic)
        tries = 1 if said["held_back"] or said["served_until"] else 10  # On a busy machine an answer may be late.
        while tries and got.code != NONE:
            got = self.client("bob", "get", topic, "--count", "10000", "--wait", "5", "--json")
            records += got.out.count("\n")
            told += got.code == TOLD
            tries -= got.code not in {0, TOLD}
        facts = f"{records} records, {told} losses told, at last {got.code}: {got.err.strip()}"
        if said["held_back"]:
            return [] if not records and got.code not in {0, NONE} else [f"{topic} is held back, and has {facts}"]
        if said["served_until"]:
            return (
                [] if records <= int(str(said["records"])) else [f"{topic} is served until …, and has {facts}: {said}"]
            )
        out = []
        if records != said["records"] or got.code != NONE or bool(told) is not bool(said["lost"]):
            out.append(f"{topic} has {facts}; check said {said}")
        message = self._cluster.directory / "message"
        put = self.client("late", "put", topic, str(message))
        if whole and put.code:
            out.append(f"{topic} takes no put: {put}")
        return out


def tried(made: Made, place: Path, seed: int) -> tuple[str, int, list[str]]:
    """One seed: the damage, the exit code of `check`, and where the processes did something else."""
    with Cluster(place) as cluster:
        what = (mishap if seed % 2 else damage)(made, place / "damaged", seed // 2)
        for process, role in ((cluster.proxy(), "proxy"), (cluster.server("s2"), "server")):
            until(lambda process=process, role=role: process.lines(f"{role} "), f"the {role} starts", PATIENCE_SECONDS)
        return what, *Round(cluster, place / "damaged").compared()


def rounds() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began = time.monotonic()
    codes: Counter[int] = Counter()
    wrong = 0
    with workshop() as (made, _):
        for seed in range(asked.seed, asked.seed + asked.count):
            with tempfile.TemporaryDirectory() as place:
                what, code, findings = tried(made, Path(place), seed)
            print(f"seed {seed}, {what}: check ends with {code}, {len(findings)} found", flush=True)
            codes[code] += 1
            wrong += bool(findings)
            for finding in findings:
                print(f"seed {seed}, {what}: {finding}", flush=True)
    kinds = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"{asked.count} damaged stores in {time.monotonic() - began:.0f} s: {kinds}; {wrong} found something")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(rounds())
