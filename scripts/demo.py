"""The main job while its processes are being killed, and the proof of what came of it.

Two proxies, two servers, a publisher and two subscribers, each a process of its own. While the records flow, one of
each role is ended by SIGKILL and started again. The next death waits until the last is overcome, by what was put and
delivered, never by time: so each falls into traffic, however long the input is. At the end every process has ended, and
what the subscribers recorded is counted against the input itself. With a standby the first server's host is gone for
good instead: the process is killed, its directory deleted, and nothing of it comes back.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from demo_check import Verdict, check
from demo_input import RECORDS, SEED, Item, from_file, from_shop, save
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from pubsub.cli.authorizing import authorize_line
from pubsub.cli.cluster_keys import ClusterKeys
from pubsub.cli.key_files import make
from pubsub.config.addresses import ProxyAddress, write_proxies
from pubsub.security.authorized import parse_name

STUCK_SECONDS: Final = 90.0
"""Without any progress for so long the demo gives up."""

STOP_SECONDS: Final = 10.0
SUBSCRIBERS: Final = ("first", "second")
SCRIPTS: Final = Path(__file__).resolve().parent
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")}
"""The processes' own: what names another cluster, or a key for it, is nothing to this one."""

RIGHTS: Final = {"publisher": ["put=*"], **{name: ["get=*"] for name in SUBSCRIBERS}}
"""What each client may do where there are keys."""


class Failed(Exception):
    """The demo cannot go on; the text says why."""


class Actor:
    """One process of the demo: started, told, heard, killed, started again. Use only its own methods on it."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name, self.command, self.log = name, command, log
        self.lines: list[str] = []
        self.kills = 0
        self._rest = b""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, or starts it again."""
        self._rest = b""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=ENVIRONMENT
            )
        os.set_blocking(self.output.fileno(), False)

    @property
    def output(self) -> IO[bytes]:
        """What it says."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout

    def tell(self, text: str) -> None:
        """One line to its stdin."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def heard(self) -> tuple[list[str], bool]:
        """The lines that came since, and whether it has ended."""
        chunk = self.output.read(1 << 16)
        *lines, self._rest = (self._rest + (chunk or b"")).split(b"\n")
        return [line.decode() for line in lines], chunk == b""

    def kill(self) -> None:
        """SIGKILL, by its own process ID."""
        assert self.process is not None
        self.process.kill()
        self._reap()
        self.kills += 1

    def stop(self) -> None:
        """SIGTERM; SIGKILL if it does not heed it."""
        if self.process is None or self.process.stdout is None or self.process.stdout.closed:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reap()

    def _reap(self) -> None:
        assert self.process is not None
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


@dataclass(slots=True)
class Death:
    """A process that is to be killed once so many records were put; `for_good`: with its disk."""

    role: str
    at: int
    report: str = ""
    for_good: bool = False


class Demo:
    """The run: who is there, how far everything is, and what happens next."""

    def __init__(
        self,
        items: list[Item],
        directory: Path,
        show: Progress,
        record: Path | None = None,
        *,
        keys: bool = False,
        standby: bool = False,
    ) -> None:
        self.items, self.directory, self.show, self.record = items, directory, show, record
        self.listing = directory / "proxies"
        self.keys = ClusterKeys(directory) if keys else None
        self.proxies = ("p1", "p2", "p3") if standby else ("p1", "p2")
        self.members = {"s1": "s1", "s1b": "s1"} if standby else {"s1": "s1", "s2": "s2"}
        """Processes of servers, and whose they are."""
        self.waited: dict[str, float] = {}
        """Of each subscriber the longest time without a message, from the death for good until that is overcome."""
        self.put = 0
        self.took = dict.fromkeys(SUBSCRIBERS, 0)
        self.actors: dict[str, Actor] = {}
        self.said: dict[str, set[str]] = {}
        self.moved = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._bars: dict[str, TaskID] = {}
        self._granted = 0
        self._watched: dict[str, tuple[float, int]] = {}
        total = len(items)
        self.deaths = [
            Death(role, max(1, total * place // 6), for_good=standby and role == "s1")
            for place, role in enumerate(("p1", "s1", "publisher", "first"), 1)
        ]  # fmt: skip

    def run(self) -> Verdict:
        """The whole demo.

        Raises:
            Failed: a process ended by itself, or nothing moves any more.
        """
        save(self.items, self.directory / "input")
        with ExitStack() as stack:
            stack.callback(self._stop_all)
            self._start_service()
            for name in SUBSCRIBERS:
                self._start_client("subscriber", name)
            self._until(lambda: all("subscribed" in self.said[name] for name in SUBSCRIBERS), "nobody subscribed")
            for name in ("put", *SUBSCRIBERS):
                title = "put" if name == "put" else f"delivered to {name}"
                self._bars[name] = self.show.add_task(title, total=len(self.items))
            self._start_client("publisher", "publisher")
            for number, death in enumerate(self.deaths):
                before = self.deaths[number - 1].at if number else 0
                self._grant(death.at + max(1, len(self.items) // 3))
                self._until(self._in_flight(before, death.at), f"before the death of {death.role}")
                self._strike(death)
            self._grant(len(self.items))
            self._until(lambda: "flushed" in self.said["publisher"] and self.put == len(self.items), "not all was put")
            self._until(lambda: self._least() >= len(self.items), "not all was delivered", give_up=False)
            for name in ("publisher", *SUBSCRIBERS):
                self.actors[name].tell("finish")
            self._until(lambda: all("ended" in self.said[name] for name in ("publisher", *SUBSCRIBERS)), "no end")
        paths = {name: _database(self.directory / name) for name in SUBSCRIBERS}
        return check(self.items, _database(self.directory / "publisher"), paths)

    def _in_flight(self, delivered: int, put: int) -> Callable[[], bool]:
        """When the last death is overcome, and the publisher is beyond a point of the input (or at its end)."""
        return lambda: self._least() >= delivered and self.put >= min(put + 1, len(self.items))

    def _least(self) -> int:
        return min(self.took.values())

    def _grant(self, limit: int) -> None:
        self._granted = min(limit, len(self.items))
        self.said["publisher"].discard("flushed")
        self.actors["publisher"].tell(str(self._granted))

    def _strike(self, death: Death) -> None:
        actor = self.actors[death.role]
        assert actor.process is not None
        delivered = " and ".join(f"{count:,}" for count in self.took.values())
        death.report = f"{self.put:,} put, {delivered} delivered"
        self._selector.unregister(actor.output)
        pid = actor.process.pid
        actor.kill()
        if death.for_good:
            shutil.rmtree(self.directory / death.role)
            death.report += "; its directory deleted"
            self.show.console.print(f"SIGKILL {death.role} (pid {pid}) at {death.report}, for good")
            overcome = max(1, len(self.items) // 20)
            self._watched = {name: (time.monotonic(), took + overcome) for name, took in self.took.items()}
            return
        self.show.console.print(f"SIGKILL {death.role} (pid {pid}) at {death.report}; started again")
        self._start(actor)
        if death.role == "publisher":
            self.actors["publisher"].tell(str(self._granted))

    def _start_service(self) -> None:
        if self.keys is not None:
            self.keys.make_client()
            for name, rights in RIGHTS.items():  # Before there is a proxy: it would look again after a second only.
                public = make(self.directory / name / f"{name}.key")
                authorize_line(self.keys.authorized, *parse_name("client", name), public, rights)
        proxies = []
        for name in self.proxies:
            options = ["--bind", "tcp://127.0.0.1:0", "--startup-wait-seconds", "0"]
            self._start_pubsub("proxy", name, options)
            self._until(lambda n=name: "ready" in self.said[n], f"{name} is not ready")  # type: ignore[misc]
            ready = self.actors[name].lines[-1].replace(",", " ").split()
            address = next(word for word in ready if "://" in word)
            proxies.append(ProxyAddress(address, address))
            # The proxies of a cluster are fixed: when it starts again, it listens where it listened.
            self.actors[name].command = self._pubsub("proxy", name, ["--bind", address])
        write_proxies(self.listing, proxies if self.keys is None else self.keys.named(proxies))
        for name, server in self.members.items():
            options = ["--proxies-file", str(self.listing)]
            if name != server:
                options += ["--standby-of", self.actors[server].lines[-1].split()[-1]]
            self._add(name, self._pubsub("server", server, options, name))
            self._until(lambda n=name: "ready" in self.said[n], f"{name} is not ready")  # type: ignore[misc]
        if "s1b" in self.members:
            self._until(self._in_sync, "the standby is not in sync")

    def _in_sync(self) -> bool:
        """Whether both members have all that is answered, as `pubsub status` says."""
        key = [] if self.keys is None else ["--key", str(self.keys.client)]
        command = [sys.executable, "-m", "pubsub", "status", "--json", "--proxies-file", str(self.listing), *key]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
        found = json.loads(done.stdout) if done.returncode == 0 else {"standbys": []}
        return any(row["state"] == "in sync" for row in found["standbys"])

    def _pubsub(self, role: str, name: str, options: list[str], place: str = "") -> list[str]:
        """The command line of a proxy or server; `place`: its directory, where that has another name."""
        place = place or name
        command = [sys.executable, "-m", "pubsub", role, "start", "--id", name, "--dir", str(self.directory / place)]
        return [*command, *options, *([] if self.keys is None else self.keys.options(role, name, place))]

    def _start_pubsub(self, role: str, name: str, options: list[str]) -> None:
        self._add(name, self._pubsub(role, name, options))

    def _start_client(self, role: str, name: str) -> None:
        record = "-" if self.record is None else str(self.record / f"{name}.jsonl")
        places = [str(self.directory / "input"), str(self.directory / name), record, str(self.listing)]
        self._add(name, [sys.executable, str(SCRIPTS / "demo_roles.py"), role, *places])

    def _add(self, name: str, command: list[str]) -> None:
        self.actors[name] = Actor(name, command, self.directory / f"{name}.log")
        self._start(self.actors[name])

    def _start(self, actor: Actor) -> None:
        self.said[actor.name] = set()
        actor.start()
        self._selector.register(actor.output, selectors.EVENT_READ, actor)

    def _until(self, done: Callable[[], bool], what: str, *, give_up: bool = True) -> None:
        """Listens until `done`; after a long silence it raises, or just returns where the count itself will tell."""
        self.moved = time.monotonic()
        while not done():
            if time.monotonic() - self.moved > STUCK_SECONDS:
                if not give_up:
                    return
                raise Failed(f"{what}: nothing moved for {STUCK_SECONDS:g} s")
            for key, _ in self._selector.select(1.0):
                self._listen(key.data)

    def _listen(self, actor: Actor) -> None:
        lines, ended = actor.heard()
        for line in lines:
            self._note(actor, line)
        if ended:
            self._selector.unregister(actor.output)
            if "ended" not in self.said[actor.name]:
                last = actor.log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
                raise Failed(f"{actor.name} ended by itself: {last[0]}")

    def _note(self, actor: Actor, line: str) -> None:
        self.moved = time.monotonic()
        actor.lines.append(line)
        word, _, number = line.partition(" ")
        if " ready: " in line:
            word = "ready"
        self.said[actor.name].add(word)
        if word == "put":
            self.put = max(self.put, int(number))
        elif word == "took":
            self.took[actor.name] = int(number)
            self._watch(actor.name)
        for name, bar in self._bars.items():
            self.show.update(bar, completed=self.put if name == "put" else self.took[name])

    def _watch(self, name: str) -> None:
        """How long a subscriber waited for its next message, until it has overcome the death."""
        if name in self._watched:
            since, overcome = self._watched[name]
            self.waited[name] = max(self.waited.get(name, 0.0), self.moved - since)
            self._watched[name] = self.moved, overcome
            if self.took[name] >= overcome:
                del self._watched[name]

    def _stop_all(self) -> None:
        for name in ("publisher", *SUBSCRIBERS, *self.members, *self.proxies):
            if name in self.actors:
                self.actors[name].stop()
        self._selector.close()


def _database(directory: Path) -> Path:
    """The SQLite file of a client's state directory, with the client's own tables and the application's."""
    return directory / f"{directory.name}.db"


def _tables(verdict: Verdict, demo: Demo) -> list[Table]:
    again = "some started again" if demo.waited else "started again"
    deaths = Table("killed", "when", title=f"Killed by SIGKILL and {again}", title_justify="left")
    for death in demo.deaths:
        deaths.add_row(death.role, death.report)
    table = Table(title="What the subscribers recorded, against the input", title_justify="left")
    for column in (
        "topic",
        "put",
        *(f"to {name}" for name in SUBSCRIBERS),
        "lost",
        "duplicated",
        "misordered",
        "foreign",
    ):
        table.add_column(column, justify="left" if column == "topic" else "right", no_wrap=column == "topic")
    wrong = ("lost", "duplicated", "misordered", "foreign")
    for topic, counts in sorted(verdict.topics.items()):
        put = next(iter(counts.values())).put
        delivered = [counts[name].delivered for name in SUBSCRIBERS]
        bad = [sum(getattr(count, what) for count in counts.values()) for what in wrong]
        table.add_row(topic, *(f"{number:,}" for number in (put, *delivered, *bad)))
    delivered = [sum(counts[name].delivered for counts in verdict.topics.values()) for name in SUBSCRIBERS]
    totals = [verdict.put, *delivered, *(verdict.total(what) for what in wrong)]
    table.add_section()
    table.add_row("all", *(f"{number:,}" for number in totals), style="bold")
    return [deaths, table]


def main() -> int:
    """Runs the demo; 0 if every record was delivered once to each subscriber, in order."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "file", nargs="?", type=Path, help="publish its lines (.gz too) instead of the events of a shop's day"
    )
    parser.add_argument("--records", type=int, default=RECORDS, metavar="N", help="events of that day [%(default)s]")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help="of that day [%(default)s]")
    parser.add_argument("--topic", default="lines", help="of lines that are not JSON with a `repository` [%(default)s]")
    parser.add_argument(
        "--record", type=Path, metavar="DIR", help="have the clients record what they do there, for an audit on Spark"
    )
    parser.add_argument(
        "--keys", action="store_true", help="let nobody in without a key, and each do its own work only"
    )
    parser.add_argument(
        "--standby", action="store_true", help="give the server a standby, and lose the primary's host for good"
    )
    arguments = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=110)
    try:
        if arguments.record:
            arguments.record.mkdir(parents=True, exist_ok=True)
        if arguments.file:
            items = from_file(arguments.file, arguments.topic)
        else:
            items = from_shop(arguments.records, arguments.seed)
    except OSError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    if not items:
        print("demo: there is nothing to publish: the input is empty", file=sys.stderr)
        return 2
    started = time.monotonic()
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="pubsub-demo-") as directory:
        try:
            with Progress(*columns, console=console) as show:
                options = {"keys": arguments.keys, "standby": arguments.standby}
                demo = Demo(items, Path(directory), show, arguments.record, **options)
                verdict = demo.run()
        except Failed as error:
            console.print(f"demo: {error}", style="bold")
            return 1
    console.print(*_tables(verdict, demo), sep="\n")
    outcome = "every record was delivered once to each subscriber, in order" if verdict.right else "NOT exactly once"
    noun = "record" if verdict.expected == 1 else "records"
    console.print(f"{verdict.expected:,} {noun}, {time.monotonic() - started:.1f} s: {outcome}")
    for name, seconds in sorted(demo.waited.items()):
        console.print(f"without the primary's host: {name} waited {seconds:.1f} s at most for its next message")
    if arguments.record:
        console.print(
            f"judge it by what the clients recorded: pubsub pipeline audit {arguments.record}", soft_wrap=True
        )
    return 0 if verdict.right else 1


if __name__ == "__main__":
    sys.exit(main())
