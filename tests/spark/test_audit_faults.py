"""The audit as a second judge of real processes that are killed, and of a server that is broken on purpose."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from contextlib import closing
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pubsub.client.core.cursor import Cursor
from pubsub.spark.audit import Audit
from tests.faults.checker import read_puts, read_subscriber
from tests.faults.cluster import ROOT, SPARK_SECONDS, Cluster
from tests.faults.finish import finish, objections
from tests.faults.test_kills import TOPICS, kill_and_restart

pytestmark = [pytest.mark.spark, pytest.mark.faults]
alive = importlib.import_module("tests.faults.test_checker_alive")


def audited(session: Any, record: Path, **options: Any) -> tuple[Counter[str], dict[str, int]]:
    with closing(Audit(session, [str(record)], **options)) as audit:
        return Counter(flaw.kind for flaw in audit.flaws()), audit.counts()


def test_both_judges_agree_that_killed_processes_lost_and_doubled_nothing(session: Any, tmp_path: Path) -> None:
    rng, record = Random(3), tmp_path / "record"
    with Cluster(tmp_path, record) as cluster:
        cluster.run()
        subscribers = [
            cluster.subscriber("bob", TOPICS, clumsy=0.02),
            cluster.subscriber("eve", TOPICS, leaves=["e"]),
        ]
        for process in subscribers:
            process.wait_line("subscribed")
        publishers = [cluster.publisher(name, TOPICS, pause=0.02) for name in ("alice", "carl")]
        for role in (subscribers, publishers, cluster.servers, subscribers, cluster.proxies, publishers):
            kill_and_restart(rng, rng.choice(role), subscribers)
        finish(cluster, TOPICS, publishers, subscribers)
    assert objections(cluster, publishers, subscribers) == []
    flaws, counts = audited(session, record, drained=True)
    assert not flaws
    assert counts["sessions"] > counts["clients"] == 5
    # What the histories say, and the words that end the topics. A put may be written there and never made, and who left
    # a topic is owed nothing of the time before.
    puts = [put for process in publishers for put in read_puts(cluster.state(process.name))]
    acknowledged = [put for put in puts if put.acknowledged < inf]
    assert len(acknowledged) <= counts["put"] - len(TOPICS) <= len(puts)
    seen = sum([len(read_subscriber([cluster.state(process.name)]).seen) for process in subscribers])
    assert len(acknowledged) < counts["delivered"] <= seen + 2 * len(TOPICS)
    assert counts["not_due"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("breakage", "play", "kind"),
    [
        ("ignore_last", alive.nothing_happens, "doubled"),
        ("answer_before_commit", alive.the_server_dies, "lost"),
    ],
)
def test_the_audit_finds_a_faulty_server(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakage: str, play: Any, kind: str
) -> None:
    monkeypatch.setattr(Cursor, "taken", property(lambda _: {}))  # The client's own net would catch it.
    begin, record = tmp_path / "begin", tmp_path / "record"
    with Cluster(tmp_path, record) as cluster:
        cluster.run(1, 1, entry=("-m", "tests.faults.broken_server", breakage, str(begin)))
        play(cluster, begin)
    flaws, _ = audited(session, record, drained=True)
    assert flaws[kind] > 0


@pytest.mark.nightly
def test_the_demos_record_is_clean(session: Any, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"line {number % 7}\n" for number in range(300)))
    record = tmp_path / "records"
    command = [sys.executable, str(ROOT / "scripts/demo.py"), str(tmp_path / "lines"), "--record", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SPARK_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"pubsub pipeline audit {record}" in done.stdout
    flaws, counts = audited(session, record, drained=True)
    assert not flaws
    assert (counts["put"], counts["clients"], counts["sessions"]) == (300, 3, 5)
    assert counts["delivered"] + counts["unrecorded"] == 600
