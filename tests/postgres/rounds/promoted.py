"""Rounds in which a replica takes the place of the database: it has all commits, or lacks the latest ones.

    behind   The replica was away for a while. A client with lost acknowledged commits has to say so:
             `DatabaseOlder`, or `StateCopied` if a server has a record that the database lacks. Nothing is there twice.
    equal    Each commit waits for the replica, or all processes end before the change. Then all clients go on, none
             says anything of that kind, and tables and messages agree to the row.

The truth about lost commits is the old primary's: it is started again after the crash, apart from all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.faults.cluster import Process, until
from tests.postgres.ledger import TOPICS, Writers
from tests.postgres.rounds import audit
from tests.postgres.rounds.running import PAUSE_SECONDS, WRITERS
from tests.postgres.rounds.stage import OTHERS, Stage
from tests.postgres.server import Postgres

PROBE: Final = 700_000
"""Writer of the messages that make every consumer use its database, and that show the end of each topic."""

SAYS: Final = {
    "the database is older than this process": "DatabaseOlder",
    "the database is behind the records of its servers": "StateCopied",
}
STREAMS: Final = "select count(*) from pg_stat_replication where state = 'streaming'"
FALLS_BEHIND: Final = 0.65
"""Share of the rounds in which the replica is behind."""


def run(number: int, seed: int, directory: Path, say: Callable[[str], Any] = lambda text: None) -> list[str]:
    """Run one round, with processes of its own; return the objections."""
    random = Random(f"{seed} {number}")
    behind = random.random() < FALLS_BEHIND
    directory.mkdir(parents=True, exist_ok=True)
    with Stage(directory, seed) as stage, stage.postgres.replica() as replica:
        primary = stage.postgres
        with primary.connect() as connection:
            until(lambda: connection.execute(STREAMS).fetchone() == (1,), "the replica streams")
        writers = Writers(stage.url, WRITERS, seed, PAUSE_SECONDS)
        writers.held = stage.held
        with writers:
            stage.wait_on(1)
            (_fall_behind if behind else _keep_up)(stage, replica, random)
        found = _behind(stage, primary, say) if behind else _equal(stage)
        kind = "behind" if behind else "equal"
        say(f"round {number}: {kind}, {writers.committed} committed, {_sayings(stage)}, wrong: {found}")
        return found


def _fall_behind(stage: Stage, replica: Postgres, random: Random) -> None:
    """Let the clients go on for a while without the replica."""
    replica.stop()
    enough = (stage.ask("select count(*) from effects") or (0,))[0] + random.choice((1, 3, 10, 40))
    until(lambda: (stage.ask("select count(*) from effects") or (0,))[0] >= enough, "more effects")
    stage.take_over(replica)


def _keep_up(stage: Stage, replica: Postgres, random: Random) -> None:
    """Let the replica have each commit of which a client knows."""
    if random.random() < 0.5:
        with stage.postgres.connect() as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
        stage.wait_on(2)
        stage.take_over(replica)
    else:
        for process in stage.all:
            process.kill()
        with stage.postgres.connect() as connection, replica.connect() as standby:
            (end,) = connection.execute("select pg_current_wal_flush_lsn()").fetchone() or ("",)
            reached = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
            until(lambda: standby.execute(reached, (end,)).fetchone() == (True,), "the replica has all")
        stage.take_over(replica)
        for process in stage.all:
            process.start() if process in stage.relays else stage.restart(process)
    stage.link.refuses = False


def _equal(stage: Stage) -> list[str]:
    stage.wait_on(3)
    stage.finish()
    found = audit.objections(audit.read(stage.postgres.url(stage.database), stage.directory))
    return found + [f"{name} said {said}, and nothing was lost" for name, said in _sayings(stage).items()]


def _behind(stage: Stage, primary: Postgres, say: Callable[[str], Any]) -> list[str]:
    after = _commits(stage.postgres, stage.database)
    primary.start()
    before = _commits(primary, stage.database)
    primary.stop()
    stage.link.refuses = False
    # A commit on its way was not acknowledged, perhaps. One that is further behind was.
    lost = {client for client, number in before.items() if after.get(client, 0) < number - 1}
    with stage.cluster.client("probe") as probe:
        for part, topic in enumerate(TOPICS):
            probe.put(topic, b"%d 1 %d" % (PROBE, part))
        with stage.postgres.connect(stage.database) as connection:
            for part, topic in enumerate(TOPICS):
                insert = "insert into pubsub.outgoing (topic, body) values (%s, %s)"
                connection.execute(insert, (topic, b"%d 3 %d" % (PROBE, part)))
        until(lambda: _settled(stage, after), "all clients have said something, or go on")
        for process in stage.all:
            process.end()
        for part, topic in enumerate((*TOPICS, *OTHERS)):
            probe.put(topic, b"%d 2 %d" % (PROBE, part))
        ends = {f"{topic}\t{PROBE} 2 {part}" for part, topic in enumerate((*TOPICS, *OTHERS))}
        lines = stage.directory / "received"
        until(lambda: ends <= set(lines.read_text().splitlines()), "the reader is at the end of each topic")
    sayings = _sayings(stage)
    said = {_client_of(stage, name) for name in sayings}
    # A relay opens its client anew after a lost connection. It has to say something only if a server has more than it.
    must = lost - {_client_of(stage, "relay")}
    found = [f"{client} has lost commits, and says nothing" for client in sorted(must - said)]
    say(f"lost commits: { {client: before[client] - after.get(client, 0) for client in sorted(lost)} }")
    return found + audit.doubled(audit.read(stage.postgres.url(stage.database), stage.directory))


def _commits(postgres: Postgres, database: str) -> dict[str, int]:
    with postgres.connect(database) as connection:
        return {row[0]: row[1] for row in connection.execute("select client, commits from pubsub.state")}


def _client_of(stage: Stage, process: str) -> str:
    """Return the client of a process: relays have one together."""
    relay = stage.ask("select name from pubsub.relay") or ("",)
    return str(relay[0]) if process.startswith("relay") else process


def _settled(stage: Stage, after: dict[str, int]) -> bool:
    """Whether each client has reported the loss, or has committed since; a relay has also sent all rows."""
    now, relay = _commits(stage.postgres, stage.database), _client_of(stage, "relay")
    said = {_client_of(stage, name) for name in _sayings(stage)}
    rows = {f"{topic}\t{PROBE} 3 {part}" for part, topic in enumerate(TOPICS)}
    sent = relay in said or rows <= set((stage.directory / "received").read_text().splitlines())
    return sent and all(client in said or now[client] > number for client, number in after.items())


def _sayings(stage: Stage) -> dict[str, str]:
    """Return the last thing of interest that each process has said."""
    found: dict[str, str] = {}
    for process in stage.all:
        for text, name in SAYS.items():
            if any(text in file.read_text() for file in _files(stage, process)):
                found[process.name] = name
    return found


def _files(stage: Stage, process: Process) -> list[Path]:
    return [*stage.directory.glob(f"{process.name}.*.out"), *stage.directory.glob(f"{process.name}.*.err")]
