"""A snapshot in Prometheus's format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pubsub.base.histograms import Histogram
from pubsub.metrics.counted import COUNTERS, RENAMED
from pubsub.metrics.exposition import exposition
from pubsub.metrics.snapshot import Distribution, Gauge, Snapshot
from pubsub.protocol.register import VoteOutcome
from pubsub.proxy.admission import Verdict
from tests.metrics.reading import samples

ROOT = Path(__file__).parents[2] / "pubsub"


def snapshot(unready: str = "") -> Snapshot:
    histogram = Histogram((0.001, 0.5))
    for value in (0.0005, 0.25, 7.0):
        histogram.observe(value)
    gauges = (Gauge("links", "Links.", 2, {"to": "proxies"}), Gauge("links", "", 3, {"to": 'odd "x\\'}))
    return Snapshot(
        "server", "s1", unready, {"records": 5, "new_thing": 1}, gauges,
        (Distribution("put_seconds", "Puts.", histogram.counted()),),
    )  # fmt: skip


def test_counters_gauges_and_histograms_have_the_values_of_the_snapshot() -> None:
    found = samples(exposition(snapshot()).decode())
    assert found["pubsub_server_records_total", ()] == 5
    assert found["pubsub_server_new_thing_total", ()] == 1
    assert found["pubsub_server_links", ("proxies",)] == 2
    assert found["pubsub_server_links", ('odd "x\\',)] == 3
    buckets = [found["pubsub_server_put_seconds_bucket", (bound,)] for bound in ("0.001", "0.5", "+Inf")]
    assert buckets == [1, 2, 3]
    assert found["pubsub_server_put_seconds_sum", ()] == 7.2505
    assert found["pubsub_server_put_seconds_count", ()] == 3
    assert found["process_resident_memory_bytes", ()] > 1_000_000
    assert found["process_open_fds", ()] > 2


def test_an_unused_counter_is_zero() -> None:
    found = samples(exposition(snapshot()).decode())
    assert found["pubsub_server_topics_merged_total", ()] == 0


@pytest.mark.parametrize(("unready", "value"), [("", 1), ("no proxy is heard", 0)])
def test_the_readiness_of_a_process_is_a_metric(unready: str, value: int) -> None:
    assert samples(exposition(snapshot(unready)).decode())["pubsub_server_ready", ()] == value


def test_each_metric_has_a_sentence_and_a_name_that_prometheus_allows() -> None:
    for family in text_string_to_metric_families(exposition(snapshot()).decode()):
        assert re.fullmatch(r"[a-z_]+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        if family.type == "histogram":
            assert family.name.endswith(("_seconds", "_bytes", "_requests", "_records"))


def named(room: str) -> Iterator[str]:
    """Every counter that the code of a room names in full."""
    for path in (ROOT / room).rglob("*.py"):
        yield from re.findall(r'counters\["([a-z_]+)"\]', path.read_text())


@pytest.mark.parametrize(("role", "rooms"), [("proxy", ("proxy", "security")), ("server", ("server", "security"))])
def test_every_counter_in_the_code_has_its_sentence(role: str, rooms: tuple[str, ...]) -> None:
    known = COUNTERS[role]
    assert {name for room in rooms for name in named(room)} - known.keys() == set()
    assert all(text.endswith(".") for text in known.values())


def test_every_counted_outcome_of_a_proxy_has_its_sentence() -> None:
    votes = {f"votes_{outcome.name.lower()}" for outcome in VoteOutcome}
    announcements = {f"announcements_{verdict.value}" for verdict in Verdict if verdict is not Verdict.ACCEPT}
    assert votes | announcements <= COUNTERS["proxy"].keys()


@pytest.mark.parametrize("role", RENAMED)
def test_a_renamed_counter_has_both_names_for_one_release(role: str) -> None:
    counters = {name: 3 + place for place, name in enumerate(RENAMED[role])}
    found = samples(exposition(Snapshot(role, "x", "", counters)).decode())
    for name, old in RENAMED[role].items():
        assert name in COUNTERS[role]
        assert old not in COUNTERS[role]
        assert found[f"pubsub_{role}_{name}_total", ()] == found[f"pubsub_{role}_{old}_total", ()] == counters[name]
