"""Scenes for rules that chance breaks too seldom: each must be clean with all rules, and not without its own."""

from __future__ import annotations

from typing import Any

from tests.standby.model.rules import Rules
from tests.standby.model.world import World


def world(rules: Rules, seed: int, world_class: type[World] = World) -> World:
    """Three proxies, a calm network, no faults but those of the scene; clients use p1."""
    while True:
        one = world_class(seed, rules)
        if len(one.proxies) == 3 and not one.move and not one.scene and not one.fresh:
            break
        seed += 1000
    one.disturb = lambda: None
    one.loss = one.late = one.tight = one.slow = one.halves = one.idle = 0
    for client in one.clients:
        client.proxy = 1
    return one


def cut(w: World, one: str, *others: str) -> None:
    w.cut.update(pair for other in others for pair in ((one, other), (other, one)))


def down(w: World, node: str) -> None:
    """Until `heal`."""
    w.nodes[node].crash(False)
    w.nodes[node].life += 2000


def back(w: World, node: str) -> None:
    w.nodes[node].life -= 1500
    w.nodes[node].start()


def finish(w: World) -> list[tuple[Any, ...]]:
    for node in (*w.members, *w.proxies):
        if node.life >= 1000:
            node.life -= 1500
    w.calm = True
    w.cut.clear()
    for node in (*w.members, *w.proxies):
        node.start()
    w.lost, w.new, w.able, w.both = "", [], True, True
    begun = w.now
    w.run_until(begun + 100)
    for client in w.clients:
        client.stop()
    w.run_until(begun + 400)
    if not w.settled():
        w.object("not served")
    elif not w.objections:
        w.check()
    return w.objections


def amnesia(rules: Rules, seed: int, world_class: type[World] = World) -> list[tuple[Any, ...]]:
    """The drop of B was accepted by p1 and p2; p1 forgets it, p2 is away: p0 and p1 know nothing of it."""
    w = world(rules, seed, world_class)
    w.run_until(40)
    cut(w, "B", "A", "p0", "p1", "p2")
    cut(w, "A", "p0")
    w.run_until(150)
    down(w, "A"), down(w, "p2")
    p1 = w.nodes["p1"]
    p1.crash(True)
    p1.lose_disk()
    p1.start()
    w.cut.clear()
    w.run_until(300)
    return finish(w)


def possible_late(rules: Rules, seed: int, world_class: type[World] = World) -> list[tuple[Any, ...]]:
    """B was chosen by p0 and p1 and answered; then p1 alone accepted its next term. A must not go back behind B."""
    w = world(rules, seed, world_class)
    w.run_until(40)
    cut(w, "B", "p2")
    down(w, "A")
    w.run_until(240)
    w.halves, w.random.sample = 1, lambda some, count: [w.proxies[1]]
    w.nodes["B"].crash(False)
    w.nodes["B"].start()
    while w.nodes["B"].up and w.now < 400:
        w.run_until(w.now + 1)
    w.halves = 0
    w.nodes["B"].life += 2000
    w.cut.clear()
    back(w, "A")
    w.run_until(w.now + 150)
    return finish(w)


def attempt(rules: Rules, seed: int, world_class: type[World] = World) -> list[tuple[Any, ...]]:
    """A starts twice with the same ballot; the promises to the first start come twice, refusals are lost."""
    w = world(rules, seed, world_class)
    send = w.send

    def twice(source: str, target: str, *message: Any) -> None:
        said = message[1].outcome if message[0] == "vote" else message[0]
        if said == "refused":
            return
        send(source, target, *message)
        if said == "promised":
            for delay in range(6, 60, 3):
                w.at(w.now + delay, w.deliver, source, target, message)

    w.send = twice
    w.run_until(40)
    cut(w, "A", "B")
    w.run_until(100 + seed % 7)  # A has dropped B.
    w.nodes["A"].crash(True)
    w.nodes["A"].start()
    w.run_until(w.now + 12 + seed % 5)
    w.nodes["A"].crash(True)
    w.nodes["A"].start()
    w.run_until(w.now + 12)
    w.cut.clear()
    w.run_until(w.now + 60)
    w.send = send
    w.run_until(w.now + 60)
    return finish(w)


def sticky(rules: Rules, seed: int, world_class: type[World] = World) -> list[tuple[Any, ...]]:
    """Only the link between the members is cut: every proxy hears the primary, which must stay primary."""
    w = world(rules, seed, world_class)
    w.run_until(40 + seed % 10)
    if seed % 2:
        cut(w, "A", "B")
    else:
        w.cut.add(("A", "B"))
    a, begin = w.nodes["A"], w.nodes["A"].begin
    a.begin = lambda kind: w.at(w.now + 12, w.fire, a, a.life, begin, (kind,))  # It is a little slow.
    w.run_until(200)
    found = [] if w.nodes["A"].role == "primary" and w.nodes["A"].term == 1 else [("replaced though heard",)]
    return found + finish(w)


SCENES = {scene.__name__: scene for scene in (amnesia, possible_late, attempt, sticky)}
