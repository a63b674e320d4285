"""The judgement on subscribers that continue in another directory while their topic is deleted."""

from __future__ import annotations

import pytest

from pubsub.client.core.loss_reports import DELETED, DELETED_AFTER_ALL
from pubsub.errors import DataLoss
from tests.simulation.deleting import Deletion, Told
from tests.simulation.history import ACKED, History, Put, Reading, Seen
from tests.simulation.simulation import simulate

NEVER_GOT = "c4 on t never got m, put at 5.000 (acked)"


class _Continued:
    """A history in which a client subscribed at 2.0, and put a message at 5.0 that nobody got."""

    def __init__(self, *deletions: Deletion) -> None:
        self.history = History(0.1)
        self.history.deletions += deletions
        self.reading: Reading = self.history.reading("c4", "t", by_get=True)
        self.reading.wanted, self.reading.asked = True, 1.9
        self.reading.confirm(2.0, ())
        self.history.put(Put("m", ("c1", 0, "main"), 1, "t", 5.0, ACKED))

    def superseded(self) -> None:
        """Its directory learns that another one has continued the subscription."""
        self.reading.promise()
        self.reading.confirmed = None

    def judged(self) -> list[str]:
        return self.history.judge()


@pytest.mark.parametrize(
    ("deletion", "found"),
    [
        (Deletion("t", 4.0, 7, 4.5), []),
        (Deletion("t", 1.0, 7, 1.5), [NEVER_GOT]),
        (Deletion("u", 4.0, 7, 4.5), [NEVER_GOT]),
    ],
    ids=["deleted since", "deleted before", "another topic"],
)
def test_a_later_directory_continues_no_subscription_from_before_a_deletion(
    deletion: Deletion, found: list[str]
) -> None:
    run = _Continued(deletion)
    run.superseded()
    run.reading.confirm(6.0, run.history.deletions)
    assert run.judged() == found


def test_messages_after_the_answer_to_the_first_directory_after_a_deletion_must_arrive() -> None:
    """The other directory had its answer before the put, so the client's own one continues that subscription."""
    run = _Continued(Deletion("t", 4.0, 7, 4.5))
    run.reading.take_over(4.9, run.history.deletions)
    run.superseded()
    run.reading.confirm(6.0, run.history.deletions)
    assert run.judged() == [NEVER_GOT]


def test_a_subscriber_in_one_directory_must_get_all_until_it_is_told_of_the_deletion() -> None:
    run = _Continued(Deletion("t", 4.0, 7, 4.5))
    assert run.judged() == [NEVER_GOT]


def test_a_subscriber_that_was_told_of_the_deletion_must_get_what_was_put_since_in_each_directory() -> None:
    run = _Continued(Deletion("t", 4.0, 7, 4.5))
    run.superseded()
    run.reading.confirm(4.6, run.history.deletions)
    run.reading.make_anew(4.8)
    run.superseded()
    run.reading.confirm(6.0, run.history.deletions)
    assert run.judged() == [NEVER_GOT]


LOG = "a" * 16


@pytest.mark.parametrize(
    ("error", "got", "found"),
    [
        (DataLoss("t", f"{LOG}.3", f"{LOG}.9", DELETED), f"{LOG}.2", []),
        (DataLoss("t", f"{LOG}.3", f"{LOG}.9", DELETED), f"{LOG}.3", [f"of the loss of {LOG}.3, and had received it"]),
        (DataLoss("t", "", "", DELETED_AFTER_ALL), f"{LOG}.2", ["that it had received everything, and lacks m"]),
    ],
    ids=["a true range", "a received message", "nothing, though it lacks one"],
)
def test_a_report_of_a_deletion_is_compared_with_the_received_messages(
    error: DataLoss, got: str, found: list[str]
) -> None:
    run = _Continued()
    run.history.alone = True
    run.history.puts["m"].acked_at = 5.5
    run.reading.parts[-1].append(Seen("t", "another", got, 5.0))
    Told(run.reading, error, 2.0, 6.0).judge(run.history)
    assert run.history.violations == [f"c4 on t was told {one}" for one in found]


def test_a_client_whose_directories_change_while_its_topic_is_deleted_again_and_again() -> None:
    assert simulate(7410000189).violations == []
