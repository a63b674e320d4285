"""A client whose database is behind: the first put on a topic asks for the server's last one (DB13)."""

from __future__ import annotations

import pytest
from rig import LOG, Rig, status

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.core.chain import DONE, UNSURE
from pubsub.errors import StateCopied, StorageError
from pubsub.protocol import Outcome, Put


@pytest.mark.parametrize("known", [0, 7])
def test_a_put_after_a_change_of_the_database_asks_for_the_last_put_first(known: int) -> None:
    rig = Rig(cuts=1, database="d")
    rig.core.outbox.chain("t").previous = known
    first, second = rig.put(1, 1)
    (question,) = rig.turn()
    assert isinstance(question.message, Put)
    assert (question.message.previous, question.message.sole_owner) == (first.counter - 1, 1)
    one, other = rig.answer(question, status(Outcome.GAP, last=known, log=LOG))
    assert isinstance(one.message, Put)
    assert isinstance(other.message, Put)
    assert (one.message.previous, other.message.previous) == (known, first.last)
    assert rig.core.copied is None
    rig.answer(one, status(Outcome.SUCCESS, last=first.last, log=LOG))
    rig.answer(other, status(Outcome.SUCCESS, last=second.last, log=LOG))
    assert (first.state, second.state) == (DONE, DONE)
    (row,) = rig.put(1)
    (out,) = rig.turn()
    assert isinstance(out.message, Put)
    assert out.message.previous == second.last
    assert row.sole_owner == 0


def test_a_put_that_the_database_has_lost_shows_that_it_is_behind() -> None:
    rig = Rig(cuts=1, database="d")
    (row,) = rig.put(1)
    (question,) = rig.turn()
    lost = row.counter - 5
    assert rig.answer(question, status(Outcome.GAP, last=lost, log=LOG)) == []
    assert isinstance(rig.core.copied, StateCopied)
    assert rig.core.copied.evidence == f"t has put {lost}, and the last one here is 0"
    assert row.state != DONE


def test_a_put_that_the_database_has_lost_shows_behind_a_row_that_it_kept() -> None:
    for database in ("", "d"):
        rig = Rig(cuts=0, database=database)
        (row,) = rig.put(1)
        rig.core.outbox.chain("t").loaded = row.last
        rig.core.outbox.cuts = 1
        rig.core.numbers.ensure(1)
        lost = rig.core.numbers.take()
        (out,) = rig.turn()
        rig.answer(out, status(Outcome.DUPLICATE, last=lost, log=LOG))
        assert (rig.core.copied is None) == (database == "")  # A power cut can have taken it from a file.


def test_a_put_asks_nothing_after_a_discard_since_the_discarded_may_be_at_the_server() -> None:
    rig = Rig(cuts=1, database="d")
    rig.core.outbox.chain("t").cleared = UNSURE
    (row,) = rig.put(1)
    (out,) = rig.turn()
    assert isinstance(out.message, Put)
    assert (out.message.previous, out.message.sole_owner) == (0, 1)
    assert row.previous == 0


def over() -> None:
    raise StorageError("state", "another process has it")


def test_an_answer_to_a_put_shows_no_copy_while_the_life_is_not_certain() -> None:
    rig = Rig()
    rig.put(1)
    (out,) = rig.turn()
    rig.core.check_life = over
    with pytest.raises(StorageError, match="another process has it"):
        rig.answer(out, status(Outcome.DUPLICATE, last=rig.core.numbers.highest + 1, log=LOG))
    assert rig.core.copied is None


def test_an_answer_to_a_subscription_supersedes_nobody_while_the_life_is_not_certain() -> None:
    rig = Rig()
    sub, out = rig.intend()
    higher = status(Outcome.SUPERSEDED, number=NUMBER_MAX // 2, epoch=7)
    (again,) = rig.answer(out, higher)  # Once a call may go above a higher number.
    rig.core.check_life = over
    with pytest.raises(StorageError, match="another process has it"):
        rig.answer(again, higher)
    assert sub.failure is None
