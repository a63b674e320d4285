"""The end of a test with traffic: all processes finish, and the checker reads their records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.faults.checker import Objection, check
from tests.faults.cluster import Cluster, Process
from tests.faults.history import END


def finish(
    cluster: Cluster, topics: Iterable[str], publishers: Sequence[Process], subscribers: Sequence[Process]
) -> None:
    """Has the publishers put their last, the subscribers take theirs, and all of them end."""
    for process in publishers:
        process.say("finish")
    for process in publishers:
        process.wait_line("done")
        assert process.wait() == 0
    for process in subscribers:
        process.say("finish")
    for process in subscribers:
        process.wait_line("finishing")
    put_end(cluster, topics)
    for process in subscribers:
        assert process.wait() == 0, process.errors.read_text()


def put_end(cluster: Cluster, topics: Iterable[str]) -> None:
    """Tell all subscribers that nothing follows."""
    client = cluster.client("closer")
    for topic in topics:
        client.put(topic, END)


def objections(cluster: Cluster, publishers: Sequence[Process], subscribers: Sequence[Process]) -> list[Objection]:
    """What the checker says of them."""
    return check(
        [cluster.state(process.name) for process in publishers],
        [cluster.state(process.name) for process in subscribers],
    )
