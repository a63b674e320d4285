"""A client killed in the midst of a group: each caller's put is answered, in doubt or not begun, never two of these."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from pubsub import Client
from tests.faults.cluster import Cluster

pytestmark = pytest.mark.faults
KILLED = -signal.SIGKILL
CALLERS = 8
END = b"end"
POINTS = [(change, when) for change in ("RowAdded", "RowsRemoved") for when in ("inside", "after")]


Told = Counter[str]


def killed(cluster: Cluster, topic: str, *, threads: bool, die: dict[str, object]) -> tuple[Told, Told]:
    """What callers had begun to put, and what they were answered, when their process was killed."""
    process = cluster._worker("together", topic, [topic], {"callers": CALLERS, "threads": threads, "die": die})
    assert process.wait() == KILLED
    begun, answered = (Counter(line.split()[-1] for line in process.lines(word)) for word in ("begun", "answered"))
    assert max(begun.values()) == 1
    assert begun.keys() >= answered.keys()
    unanswered = Counter(body.partition(":")[0] for body in begun.keys() - answered.keys())
    assert max(unanswered.values()) == 1, "each caller waits for one put at a time"
    return begun, answered


def arrive(cluster: Cluster, reader: Client, topic: str) -> tuple[int, Told]:
    """How many puts the killed client's successor has to finish, and what has arrived when it has."""
    arrived: Told = Counter()
    with cluster.client(topic) as successor:
        kept = successor.unfinished(topic)
        successor.put(topic, END)  # What the killed one left goes out before it.
    for message in reader.messages(topic):
        if message.body == END:
            break
        arrived[message.body.decode()] += 1
    return kept, arrived


@pytest.mark.parametrize("threads", [False, True])
def test_a_client_killed_in_the_midst_of_a_group_has_put_each_record_once_or_not_at_all(
    cluster: Cluster, threads: bool
) -> None:
    cluster.run(1, 1)
    reader = cluster.client("reader")
    for change, when in POINTS:
        topic = f"{change}-{when}"
        reader.subscribe(topic)
        # The 20th row of a group is written when its callers have been answered before; 64 rows leave together.
        count = 20 if change == "RowAdded" else 1
        die = {"change": change, "when": when, "count": count}
        begun, answered = killed(cluster, topic, threads=threads, die=die)
        assert answered
        assert max(answered.values()) == 1
        kept, arrived = arrive(cluster, reader, topic)
        assert max(arrived.values()) == 1, "twice"
        assert answered.keys() <= arrived.keys() <= begun.keys()
        assert kept <= len(arrived)
        for caller in range(CALLERS):
            own = [int(body.partition(":")[2]) for body in arrived if body.startswith(f"{caller}:")]
            assert own == list(range(len(own))), "each caller's own are in order, and none between them is missing"


@pytest.mark.parametrize(
    ("when", "threads"),
    [
        ("inside", False),
        ("after", True),
        pytest.param("inside", True, marks=pytest.mark.nightly),
        pytest.param("after", False, marks=pytest.mark.nightly),
    ],
)
def test_puts_of_a_group_begin_at_its_commit_and_are_in_doubt_afterwards(
    cluster: Cluster, when: str, threads: bool
) -> None:
    """At the very first group nobody is answered, and nothing else is in flight."""
    cluster.run(1, 1)
    reader = cluster.client("reader")
    reader.subscribe("first")
    begun, answered = killed(cluster, "first", threads=threads, die={"change": "RowAdded", "when": when, "count": 1})
    kept, arrived = arrive(cluster, reader, "first")
    assert not answered
    assert kept == arrived.total(), "what the outbox keeps goes out, each once"
    if when == "inside":
        assert not kept, "none of those who began has put"
    else:
        assert 1 <= kept <= CALLERS
        assert arrived.keys() <= begun.keys()
