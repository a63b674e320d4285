"""A client's memory against the content of its store, as the simulator compares them."""

from __future__ import annotations

import pytest

from pubsub.protocol import Outcome, Status
from tests.client.rig import LOG, Rig
from tests.simulation.breakages.table import broken
from tests.simulation.client_memory import _outbox
from tests.simulation.simulation import Simulation, shortened

SEED = 9_000_000


def run(seed: int) -> list[str]:
    simulation = Simulation(seed, shortened(seed))
    simulation.run()
    return [line for client in simulation.cast.clients for line in client.found]


def test_a_client_has_the_content_of_its_store_in_memory() -> None:
    assert not [line for seed in range(SEED, SEED + 5) for line in run(seed)]


@pytest.mark.slow
def test_a_position_that_is_not_stored_is_detected() -> None:
    with broken("position not committed with what was handled"):
        assert any("position of" in line for seed in range(SEED, SEED + 10) for line in run(seed))


@pytest.mark.slow
def test_a_row_that_was_not_removed_is_detected() -> None:
    with broken("finished rows stay in the store"):
        assert any("puts to" in line for seed in range(SEED, SEED + 10) for line in run(seed))


def test_a_put_after_another_without_a_log_is_detected() -> None:
    rig = Rig()
    (done,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, Status("s", Outcome.SUCCESS, last=done.last, log=LOG))
    rig.put(1)
    assert not [line for line in _outbox(rig.core, rig.core) if "no log is named" in line]
    rig.core.outbox.chain("t").log = ""
    assert [line for line in _outbox(rig.core, rig.core) if "no log is named" in line]
