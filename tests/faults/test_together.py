"""A client killed in the midst of a group: each caller's put is answered, in doubt or not begun, never two of these."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.faults.cluster import Cluster

pytestmark = pytest.mark.faults
KILLED = -signal.SIGKILL
CALLERS = 8
END = b"end"
POINTS = [(change, when) for change in ("RowAdded", "RowsRemoved") for when in ("inside", "after")]


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
        process = cluster._worker("together", topic, [topic], {"callers": CALLERS, "threads": threads, "die": die})
        assert process.wait() == KILLED
        begun, answered = (Counter(process.lines(word)) for word in ("begun", "answered"))
        begun, answered = (Counter(line.split()[-1] for line in lines) for lines in (begun, answered))
        assert answered
        assert max(answered.values()) == 1
        successor = cluster.client(topic)
        kept = successor.unfinished(topic)
        successor.put(topic, END)  # What the killed one left goes out before it.
        arrived: Counter[str] = Counter()
        for message in reader.messages(topic):
            if message.body == END:
                break
            arrived[message.body.decode()] += 1
        assert max(arrived.values()) == 1, "twice"
        assert answered.keys() <= arrived.keys() <= begun.keys()
        assert kept <= len(arrived)
        for caller in range(CALLERS):
            own = [int(body.partition(":")[2]) for body in arrived if body.startswith(f"{caller}:")]
            assert own == list(range(len(own))), "each caller's own are in order, and none between them is missing"
        successor.close()
