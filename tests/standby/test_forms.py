"""Which form the entries have that a primary writes, and that a standby says which forms it reads."""

from __future__ import annotations

from random import Random

from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.replication.entries import changes_of
from pubsub.server.standby.replication.follower import Following
from tests.standby.test_primary import NAMES, PUT, Primary


def test_a_follow_names_the_form_of_entries_that_the_standby_reads() -> None:
    assert Following(*NAMES, "B", ROOT, [], Random(1), 0.0, 1.0).follow().form == 2


def test_entries_have_the_first_form_until_the_standby_reports_another() -> None:
    one = Primary("A", EntryId(4, 7))

    def form() -> int:
        entry = one.loop(changes=PUT)
        assert entry is not None
        assert changes_of(entry) == PUT
        return {b"{": 1, b"\x94": 2}[bytes(entry.parts[0][:1])]

    assert form() == 1  # There is no standby.
    one.follow(one.core.end)
    assert form() == 1  # It is of a release that does not report the forms it reads.
    one.follow(one.core.end, form=2)
    assert form() == 2
    one.follow(one.core.end, form=3)
    assert form() == 2  # A later release reads this one too.
    one.follow(one.core.end)
    assert form() == 1  # It was started as the earlier release again.
    one.follow(one.core.end, form=2)
    one.sleep(10)
    one.follow(one.core.end, member="C")
    assert form() == 1  # Another member stands in its place.
