"""Calls with SIGKILL of caller and worker at each commit and send, and of server and proxy: each happens once."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.faults.call_rounds import CALLS, Rounds, judge
from tests.faults.cluster import Cluster, until
from tests.faults.dying import POINTS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
KILLED = -signal.SIGKILL


def by_day(*points: str) -> list[Any]:
    """Where a process dies; at the points that are not named, by night."""
    return [point if point in points else pytest.param(point, marks=pytest.mark.nightly) for point in POINTS]


@pytest.mark.parametrize("point", by_day("commit inside", "send before"))
def test_a_caller_killed_at_each_commit_and_send_has_each_reply_once(cluster: Cluster, point: str) -> None:
    cluster.run(1, 1)
    worker = cluster.caller("worker", "billing", serves=True)
    worker.wait_line("serving")
    callers = [
        cluster.caller(f"c{count}", "billing", count=6, die={"point": point, "count": count})
        for count in (1, 2, 3, 5, 8, 11)
    ]
    for caller in callers:
        assert caller.wait() == KILLED
        caller.again(die=None)
    for caller in callers:
        assert caller.wait() == 0
        assert caller.lines("different") == []
    worker.say("finish")
    assert worker.wait() == 0
    assert judge(cluster, "worker", [caller.name for caller in callers], 6) == []


@pytest.mark.parametrize("point", by_day("commit after", "send after"))
def test_a_worker_killed_at_each_commit_and_send_has_each_effect_once(cluster: Cluster, point: str) -> None:
    cluster.run(1, 1)
    worker = cluster.caller("worker", "billing", serves=True)
    worker.wait_line("serving")
    worker.kill()
    caller = cluster.caller("caller", "billing", count=12)
    for count in (1, 2, 3, 4, 5, 7, 9):
        worker.again(die={"point": point, "count": count})
        until(lambda: worker.running.poll() is not None or caller.running.poll() is not None, "one of them ends")
        if caller.running.poll() is not None:
            break
        assert worker.running.poll() == KILLED
    if worker.running.poll() is not None:
        worker.again(die=None)
    assert caller.wait() == 0
    assert caller.lines("different") == []
    worker.say("finish")
    if worker.wait() != 0:
        worker.again(die=None).say("finish")
        worker.wait()
    assert judge(cluster, "worker", ["caller"], 12) == []


def test_rounds_in_which_every_process_dies_lose_and_double_no_call(cluster: Cluster) -> None:
    """`python -m tests.faults.call_rounds --rounds 1000` is the long form."""
    cluster.run(2, 2)
    done = Rounds(cluster, 6, 1, 2)
    assert (done.found, done.over) == ([], 6)
    assert done.deaths.total() >= 18


def test_the_judges_of_calls_find_a_forged_effect(cluster: Cluster) -> None:
    cluster.run(1, 1)
    worker = cluster.caller("worker", "billing", serves=True)
    worker.wait_line("serving")
    caller = cluster.caller("caller", "billing", count=CALLS)
    assert caller.wait() == 0
    worker.say("finish")
    assert worker.wait() == 0
    assert judge(cluster, "worker", ["caller"]) == []
    with closing(sqlite3.connect(cluster.state("worker"))) as db, db:
        db.execute("insert into effects (id, body) values ('caller-1', x'61')")
        db.execute("delete from effects where id = 'caller-2'")
    with closing(sqlite3.connect(cluster.state("caller"))) as db, db:
        db.execute("update replied set body = x'62' where id = 'caller-3'")
        db.execute("update pubsub_calls set outcome = 'waiting' where id = 'caller-4'")
    said = " ".join(judge(cluster, "worker", ["caller"]))
    for part in ("did twice: ['caller-1']", "caller-2", "another reply to caller-3", "caller-4 is waiting"):
        assert part in said
