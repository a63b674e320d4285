"""A batch damaged on one member's disk comes from the other member; one damaged on both is reported as lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pubsub.errors import DataLoss
from tests.faults.cluster import Process, until
from tests.faults.members import PATIENCE_SECONDS, SERVER, Members
from tests.faults.test_catching_up import owned

pytestmark = pytest.mark.faults


def stop(members: Members, member: Process) -> Path:
    """SIGTERM, so that everything is in the one file, which is given."""
    member.running.send_signal(signal.SIGTERM)
    assert member.wait() == 0
    return members.data(member) / "server.db"


def flip(path: Path) -> None:
    """One bit of the seventeenth message is another one."""
    data = bytearray(path.read_bytes())
    data[data.index(b"a17:xxx") + 100] ^= 1
    path.write_bytes(data)


def names(bodies: list[bytes]) -> list[str]:
    return [body.partition(b":")[0].decode() for body in bodies]


@pytest.mark.parametrize("both", [False, True], ids=["on one disk", "on both disks"])
def test_a_flipped_bit_is_a_loss_only_if_both_disks_have_it(tmp_path: Path, both: bool) -> None:
    with Members(tmp_path, 1, clients=False) as members:
        bob, alice = (members.cluster.client(name, proxies=members.routing) for name in ("bob", "alice"))
        topic = owned(members, bob)
        for number in range(40):
            alice.put(topic, b"a%d:" % number + b"x" * 8000)
        first, second = members.members
        flip(stop(members, first))
        first.start()
        until(members.in_sync, "both are in sync again", PATIENCE_SECONDS)
        path = stop(members, second)
        if both:
            flip(path)
        second.start()
        until(members.in_sync, "both are in sync with the first one as primary", PATIENCE_SECONDS)
        assert members.primary() is first
        got: list[str] = []
        lost = 0
        while len(got) < 40 - both:
            try:
                batch = bob.get_many(topic, timeout=120.0)
            except DataLoss:
                lost += 1
                continue
            assert batch
            got += names(list(batch.bodies()))
        assert got == [f"a{number}" for number in range(40) if not (both and number == 17)]
        assert lost == both
        counters = members.cluster.report(SERVER)["counters"]
        assert (counters["batches_damaged"], counters.get("batches_repaired", 0)) == (1, 1 - both)
        said = first.errors.read_text()
        assert ("repaired from the other member" in said) == (not both)
        assert ("the other member has no intact copy" in said) == both
