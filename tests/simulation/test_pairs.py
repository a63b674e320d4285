"""Servers of two members in the simulation: their share of runs, the violations, and the caught breakages."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from random import Random
from typing import Any

import pytest

from pubsub.errors import StoreFull
from pubsub.server.storage.schema import FILE
from tests.simulation.breakages.pairs import PAIR
from tests.simulation.breakages.table import BREAKAGES, broken
from tests.simulation.fate import PAIR_FAULTS, PAIR_MOMENTS, Fate, draw, duels, pair
from tests.simulation.limits import small
from tests.simulation.members import MemberNode, Paired
from tests.simulation.pairs import contents
from tests.simulation.sample import require_caught, sampled
from tests.simulation.simulation import Result, Simulation, simulate

FAULTS = {
    "kill primary": 1.0, "part members": 0.5, "one way members": 0.5, "pause primary": 0.7, "both": 0.4, "switch": 0.5,
    "replace": 1.0, "kill in commit": 0.7, "power": 0.5, "full": 0.5, "lose routes": 0.7, "old copy": 0.3,
    "voters": 0.3, "cut": 0.5,
}  # fmt: skip


def struck(**facts: Any) -> Fate:
    """One server of two members and three proxies, under all faults of pairs."""
    known = {"servers": 1, "proxies": 3, "topics": 2, "seconds": 5.0, "think": 0.02, "heartbeat": 0.2, "pairs": 1}
    fate = Fate(**{**known, "faults": FAULTS, **facts})
    return replace(fate, faults=dict(fate.faults))


def run(seed: int, **facts: Any) -> Result:
    return simulate(seed, struck(**facts))


@cache
def history(seed: int) -> Result:
    """Such a run as several tests look at it."""
    return run(seed)


def quiet() -> Simulation:
    """A run of a pair in which nothing goes wrong, for three seconds; within `small`."""
    simulation = Simulation(1, struck(faults={}))
    for node in simulation.cast.nodes:
        node.start()
    simulation.world.run(3.0)
    return simulation


def both(simulation: Simulation) -> tuple[MemberNode, MemberNode]:
    """The primary and the standby."""
    (server,) = simulation.cast.pairs
    return server.active, server.other(server.active)


# The choice


def test_more_than_half_of_all_runs_have_pairs_and_each_of_their_faults() -> None:
    fates = [pair(draw(Random(seed)), seed) for seed in range(400)]
    paired = [fate for fate in fates if fate.pairs]
    assert len(paired) > 200
    assert {fault for fate in paired for fault in fate.faults} >= set(PAIR_FAULTS)
    assert any(fate.witness for fate in paired)
    assert any(fate.pairs < fate.servers for fate in paired)


def test_some_runs_with_pairs_have_one_pair_under_constant_faults() -> None:
    paired = [fate for seed in range(400) if (fate := pair(draw(Random(seed)), seed)).pairs]
    before = [asdict(fate) for fate in paired]
    struck = [duels(fate, seed) for seed, fate in enumerate(paired)]
    changed = [fate for fate, old in zip(struck, before, strict=True) if asdict(fate) != old]
    assert len(paired) / 6 < len(changed) < len(paired) / 3
    assert all(fate.servers == fate.pairs == 1 and fate.faults for fate in changed)
    assert {fault for fate in changed for fault in fate.faults} >= {*PAIR_FAULTS, *PAIR_MOMENTS}
    alone = draw(Random(1))
    assert asdict(duels(replace(alone), 1)) == asdict(alone)


def test_the_choice_of_pairs_leaves_the_rest_of_a_run_unchanged() -> None:
    for seed in range(100):
        drawn, without = pair(draw(Random(seed)), seed), draw(Random(seed))
        if not drawn.pairs:
            assert drawn == without
        more = set(PAIR_FAULTS) | {"lose routes"}
        for fate in (drawn, without):
            fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in more}
        assert {**asdict(drawn), "pairs": 0, "witness": False} == asdict(without)


# The checks


def test_two_members_serve_one_after_the_other_and_have_the_same_content() -> None:
    result = run(4, faults={"kill primary": 1.0})
    assert result.violations == []
    assert result.counters["failovers"]
    assert {"chosen: bootstrap", "chosen: add_to_sync", "members copied"} <= result.counters.keys()


def test_a_primary_that_lacks_an_answered_message_is_a_violation() -> None:
    with small(Random(0)):
        simulation = quiet()
        primary, _ = both(simulation)
        said = simulation.cast.told._servers["s1"].topics
        assert said
        simulation.cast.told.begins(primary, primary.core)
        assert simulation.cast.history.violations == []
        for name, told in said.items():
            told.end = primary.core.state.topics[name].logs[told.log].end + 1
            told.last = {publisher: counter + 1 for publisher, counter in told.last.items()}
        simulation.cast.told.begins(primary, primary.core)
        assert any("went back" in line and "ended" in line for line in simulation.cast.history.violations)
        assert any("went back" in line and "counter" in line for line in simulation.cast.history.violations)


def test_an_answer_of_a_deposed_primary_and_a_second_primary_in_a_term_are_violations() -> None:
    with small(Random(0)):
        simulation = quiet()
        primary, standby = both(simulation)
        server = simulation.cast.told._servers["s1"]
        term = primary.core.state.incarnation
        server.began.append((term + 1, standby.name, simulation.world.now))
        simulation.world.run(4.0)
        assert any(
            f"answers in term {term}, though {standby.name}" in line for line in simulation.cast.history.violations
        )
        server.began.pop()
        simulation.cast.history.violations.clear()  # It keeps the first twenty, which all say the same.
        server.answered[term] = standby.name
        simulation.world.run(5.0)
        assert any("both answer in term" in line for line in simulation.cast.history.violations)


@pytest.mark.parametrize("of_standby", [True, False])
def test_stores_that_differ_are_a_violation(of_standby: bool) -> None:
    with small(Random(0)):
        simulation = quiet()
        for _ in range(400):
            simulation.world.run(simulation.world.now + 0.003)
            if not list(simulation.pairs.differences()):
                break
        primary, standby = both(simulation)
        assert list(simulation.pairs.differences()) == []
        disk = (standby if of_standby else primary).pair.disk  # type: ignore[union-attr]
        disk.store.db.execute("insert into publisher values (99, 'nobody')")
        assert any("nobody" in line for line in simulation.pairs.differences())


def test_a_server_whose_members_are_not_in_sync_has_not_settled() -> None:
    with small(Random(0)):
        simulation = quiet()
        primary, standby = both(simulation)
        standby.end("killed")
        while "in sync" not in simulation.pairs.open_end():
            assert simulation.world.now < 8.0
            simulation.world.run(simulation.world.now + 0.5)
        primary.end("killed")
        assert "serve" in simulation.pairs.open_end()
        assert (contents(primary), list(simulation.pairs.differences())) == ({}, [])


def test_a_proxy_loses_its_data_only_if_the_others_know_its_promises() -> None:
    with small(Random(0)):
        simulation = quiet()
        one, other, _ = simulation.cast.proxies
        assert simulation.pairs.may_lose(one)
        other.end("killed")
        assert not simulation.pairs.may_lose(one)


def test_a_paired_server_has_the_state_of_its_members() -> None:
    with small(Random(0)):
        simulation = quiet()
        (server,) = simulation.cast.servers
        assert isinstance(server, Paired)
        primary, standby = both(simulation)
        assert (server.alive, server.core, server.address) == (True, primary.core, primary.address)
        server.end("killed")
        assert not any(one.alive for one in (server, primary, standby))


@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_only_a_member_that_has_a_store_must_begin_on_a_full_disk(has_store: bool, first: bool) -> None:
    with small(Random(0)):
        simulation = quiet()
        standby = both(simulation)[0 if first else 1]
        standby.end("killed")
        disk = standby.host.disk
        if not has_store:  # A file that was begun when the disk was full already is none.
            disk.restore({str(standby.settings.directory / FILE): b""})
        disk.full = disk.keeps_reserve = True
        standby.expected(StoreFull("local", "no space"))
        assert any("ended on a full disk" in line for line in standby.found) is has_store


# Runs


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, 5, 6, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3, 4, 7, 8))]
)
def test_nothing_is_found_with_all_faults_on_pairs(seed: int) -> None:
    assert history(seed).violations == []


@pytest.mark.slow
def test_a_seed_with_pairs_is_one_history() -> None:
    first, other = history(5), history(6)
    assert run(5).trace == first.trace != other.trace


SEEDS = {
    "answer before the standby has it": 11,
    "answer before the own commit": 17,
    "hold skipped for one answer": 7,
    "what changes nothing is not held": 0,
    "deposed, and answers": 1,
    "acknowledged before it is synced": 13,
    "taken-back loop not cut": 10,
    "stream trimmed too far": 5,
    "what was staged is not applied by who takes over": 7,
    "copy torn, and counted as whole": 1,
    "copy takes the store's place without its entry's place": 1,
    "promoted without a majority": 1,
    "who is behind takes over": 1,
    "term not raised": 1,
    "goes on alone without asking the register": 3,
    "in sync before it has caught up": 8,
    "register forgets what it promised and accepted": 7,
    "a proxy without a memory votes": 5,
    "a promise is not kept": 1,
    "a member is removed without the register": 1,
    "two members have one ID": 1,
}
"""Every breakage, with the first seed that shows it."""

FACTS: dict[str, dict[str, Any]] = {
    "answer before the standby has it": {"faults": {"kill primary": 1.5}},
    "hold skipped for one answer": {"faults": {"kill primary": 1.5}},
    "what changes nothing is not held": {"faults": {"pause primary": 2.0}},
    "deposed, and answers": {"faults": {"pause primary": 2.0}},
    "answer before the own commit": {"faults": {"full": 6.0, "kill primary": 0.5}},
    "taken-back loop not cut": {"faults": {"full": 6.0, "kill primary": 0.5}},
    "acknowledged before it is synced": {"faults": {"both": 3.0, "kill primary": 2.0}},
    "stream trimmed too far": {"faults": {"both": 1.5, "kill primary": 0.5}},
    "what was staged is not applied by who takes over": {"faults": {"kill primary": 1.5}},
    "promoted without a majority": {"faults": {"churn": 1.0, "voters": 0.5, "kill primary": 0.5}},
    "who is behind takes over": {"faults": {"kill primary": 1.5, "part members": 1.5}},
    "term not raised": {"faults": {"kill primary": 1.5}},
    "goes on alone without asking the register": {"faults": {"kill primary": 1.5, "part members": 1.5}},
    "in sync before it has caught up": {"faults": {"part joiner": 1.5}},
    "register forgets what it promised and accepted": {"faults": {"voters": 1.0, "kill primary": 1.5}},
    "a proxy without a memory votes": {"faults": {"lose voter": 4.0}},
    "a promise is not kept": {"faults": {"hold accepts": 1.5}},
    "a member is removed without the register": {"faults": {"replace": 4.0}},
}
"""The faults of runs that must show one rule; all faults of pairs for rules not named here."""

TRIES_MAX = 12
"""Seeds from the named one on, since every change of the product makes another history of each."""


EACH_TIME = (
    "answer before the own commit",
    "taken-back loop not cut",
    "copy torn, and counted as whole",
    "promoted without a majority",
    "who is behind takes over",
)
"""The runs of these are the shortest; the others take five times as long."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(SEEDS, EACH_TIME))
def test_a_breakage_is_caught(name: str) -> None:
    first = SEEDS[name]
    seeds = range(first, first + TRIES_MAX)
    require_caught(PAIR + name, lambda seed: struck(**FACTS.get(name, {})), seeds, compared=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_that_shows_a_breakage_finds_nothing_without_it(name: str) -> None:
    assert run(SEEDS[name], **FACTS.get(name, {})).violations == []


@pytest.mark.parametrize("title", BREAKAGES)
def test_each_breakage_fits_the_code(title: str) -> None:
    with broken(title):  # Raises if the name that it takes out has changed.
        pass


def test_each_rule_has_its_breakage() -> None:
    titles = {title.removeprefix(PAIR) for title in BREAKAGES if title.startswith(PAIR)}
    assert len(titles) >= 14
    assert titles == SEEDS.keys()
    assert titles >= FACTS.keys()
