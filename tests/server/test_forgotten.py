"""An abandonment is known again after every proxy lost its directory: cores on real stores, one proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.messenger.framing import pack
from pubsub.protocol import Operate, encode
from pubsub.server.state.replies import Outgoing
from tests.proxy.stage import Stage as Proxy
from tests.server.moving import ADDRESS, Pair
from tests.server.stage import Stage, bodies

PROXY = "tcp://127.0.0.1:1"


class Cluster(Pair):
    """Two servers that reach each other, and the one proxy of both."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for name in ("s1", "s2"):
            self.stages[name] = Stage(directory / name, id=name, advertise=ADDRESS[name], proxies=(PROXY,))
            self.stages[name].sole_owner = None
        self.proxy = Proxy()

    def carry(self, name: str, stage: Stage, out: Outgoing) -> None:
        super().carry(name, stage, out)
        if out.link != 0 or out.origin:
            return
        self.proxy.now += 0.01
        header, body = encode(out.message)
        frames = (b"", pack(1, out.source, out.destination) + header, *((body,) if len(body) else ()))
        self.proxy.core.server_message(name.encode(), frames, self.proxy.now)
        for said in self.proxy.said():
            to = self.stages.get(said.link.decode())
            if said.to_server and to is not None:
                to.say(said.message, origin=b"", callback=said.destination)

    def held_by(self) -> list[str]:
        return [server.id for server in self.proxy.core.table.holders("t")]


@pytest.mark.parametrize(("lost", "left"), [("s2", "s1"), ("s1", "s2")])
@pytest.mark.parametrize("freeze", [False, True])
def test_a_returned_copy_is_set_aside_though_no_proxy_remembers_its_abandonment(
    tmp_path: Path, lost: str, left: str, freeze: bool
) -> None:
    cluster = Cluster(tmp_path)
    away = cluster[lost]
    log = away.put("t", 1, [b"lost"], sender="ann").log
    cluster[left].subscribe("bob", "t", 5)
    cluster[left].put("t", 1, [b"kept"])
    cluster.turns()
    assert cluster.held_by() == ["s1", "s2"]
    if freeze:  # It dies while what it holds is on its way to the other one.
        cluster.lose = {"chunk"}
        cluster.merge(lost, left)
        cluster.turns(6)
        assert away.core.state.topics["t"].frozen == ADDRESS[left]
        cluster.lose = set()

    del cluster.stages[lost]
    asked = Operate("op", "-", "abandon", "t", lost, log=log, store=away.core.state.store_id)
    cluster.proxy.sleep(4.0, left)
    assert cluster.proxy.outcome(asked) == "success "
    cluster.turns()
    assert cluster[left].core.state.topics["t"].contested == {}

    cluster.proxy = Proxy()  # It starts with an empty directory.
    cluster.turns()
    away.restart()
    cluster.stages[lost] = away
    cluster.turns()
    assert cluster.holders() == cluster.held_by() == [left]
    assert [one.log for one in away.core.state.quarantined] == [log]
    assert bodies(cluster[left].get("bob", "t", None, 5)) == [b"kept"]
    cluster.close()
