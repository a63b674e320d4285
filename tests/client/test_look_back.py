"""Reading stored messages without a subscription, at a real proxy and a real server (docs/how-to/look-back.md)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pubsub.client import Client, Message
from pubsub.client import look_back as module
from pubsub.client.errors import HistoryChanged, StartGone
from pubsub.client.look_back import Place, RangeReader, parse_place
from pubsub.client.requests import Proxies
from pubsub.client.starts import describe, parse_start_text, parse_stop_text
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, DataLoss, NotKnown, Refused
from pubsub.protocol import Outcome, Read, Status
from pubsub.protocol.names import Start
from tests.client.opened import bodies, names, nothing

COUNT = 50
OLD = [b"%d" % number for number in range(COUNT)]
LOG = "00000000000000aa"


@pytest.fixture
def kept(client: Client, topic: str) -> str:
    """A topic that keeps all of COUNT old messages."""
    client.configure(topic, keep="ever")
    client.put_many(topic, OLD)
    return topic


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    page = RangeReader.page
    monkeypatch.setattr(RangeReader, "page", lambda self: page(self, 7))


def moment(message: Message) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=message.stamp)


def test_every_stored_message_is_read_in_order_and_no_position_moves(client: Client, kept: str) -> None:
    client.subscribe(kept, start="earliest")
    for _ in range(2):
        assert [message.body for message in client.read(kept)] == OLD
    assert bodies(client, kept, COUNT) == OLD
    assert nothing(client, kept)


@pytest.mark.usefixtures("small_pages")
def test_a_range_of_many_pages_has_each_message_once(client: Client, kept: str) -> None:
    client.put(kept, b"last")
    found = list(client.read(kept))
    assert [message.body for message in found] == [*OLD, b"last"]
    assert {message.replay for message in found} == {0}
    assert [message.body for message in client.read(kept, start=found[3].position, stop=found[20].id)] == OLD[3:21]
    later = [message.body for message in found if message.stamp >= found[-1].stamp]
    assert [message.body for message in client.read(kept, start=moment(found[-1]))] == later
    before = [message.body for message in found if message.stamp < found[-1].stamp]
    assert [message.body for message in client.read(kept, stop=moment(found[-1]))] == before


@pytest.mark.parametrize("number", [1, 3, 8, COUNT, COUNT + 1, 10_000])
@pytest.mark.usefixtures("small_pages")
def test_the_last_messages_are_read(client: Client, kept: str, number: int) -> None:
    assert [message.body for message in client.read(kept, start=f"last:{number}")] == OLD[-number:]
    client.subscribe(kept, start=f"last:{number}")
    assert bodies(client, kept, min(number, COUNT)) == OLD[-number:]
    assert nothing(client, kept)


def test_a_range_without_messages_is_empty(client: Client, kept: str, topic: str) -> None:
    last = list(client.read(kept))[-1]
    assert list(client.read(kept, start="latest")) == []
    assert list(client.read(kept, start=moment(last) + timedelta(seconds=1))) == []
    assert list(client.read(kept, stop=datetime(2000, 1, 1, tzinfo=UTC))) == []


def test_a_topic_that_no_server_holds_is_reported_and_not_made(client: Client, topic: str) -> None:
    with pytest.raises(NotKnown):
        list(client.read(topic))
    with pytest.raises(NotKnown):
        client.times(topic)
    with pytest.raises(NotKnown):
        list(client.read(topic))


def test_a_start_that_no_server_holds_names_the_oldest_message(client: Client, kept: str) -> None:
    first = next(iter(client.read(kept)))
    with pytest.raises(StartGone) as error:
        list(client.read(kept, start=(LOG, 5)))
    assert error.value.oldest == first.id


def test_times_are_those_of_the_stored_messages(client: Client, kept: str) -> None:
    found = list(client.read(kept))
    times = client.times(kept)
    assert (times.topic, times.records, times.exact) == (kept, COUNT, True)
    assert (times.oldest, times.newest) == (moment(found[0]), moment(found[-1]))
    assert times.bytes >= sum(map(len, OLD))
    assert times.first == found[0].position
    log, offset = found[-1].position
    assert times.end == (log, offset + 1)
    client.put(kept, b"new")
    assert [message.body for message in client.read(kept, start=times.end)] == [b"new"]


def test_a_topic_without_messages_has_no_times(client: Client, topic: str) -> None:
    client.configure(topic, keep="ever")
    times = client.times(topic)
    assert (times.oldest, times.newest, times.records, times.bytes, times.first) == (None, None, 0, 0, None)
    assert list(client.read(topic)) == []


def test_an_iteration_that_ends_early_leaves_no_connections(client: Client, kept: str) -> None:
    opened = client._look_back.range(kept, "earliest", None, None, skip_lost=False)
    for message in opened.messages():
        assert message.body == OLD[0]
        break
    with pytest.raises(CallerError):
        opened.page()


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"start": 17}, "bare number"),
        ({"stop": 17}, "stop is earliest, latest, last:N, a datetime"),
        ({"stop": "earliest"}, "stop is latest, a time"),
        ({"stop": "last:3"}, "stop is latest, a time"),
        ({"stop": datetime(2026, 11, 1)}, "time zone"),
        ({"timeout": "1"}, "timeout"),
        ({"skip_lost": 1}, "skip_lost"),
    ],
)
def test_arguments_that_are_not_allowed_are_refused_at_once(
    client: Client, topic: str, named: dict[str, Any], text: str
) -> None:
    with pytest.raises(CallerError, match=text):
        client.read(topic, **named)


def test_a_closed_client_reads_nothing(cluster: Embedded, kept: str) -> None:
    with cluster.client(f"reader{next(names)}") as reader:
        assert [message.body for message in reader.read(kept)] == OLD
    with pytest.raises(CallerError):
        next(iter(reader.read(kept)))


def test_an_async_client_reads(cluster: Embedded, kept: str) -> None:
    async def run() -> None:
        async with cluster.async_client(f"reader{next(names)}") as reader:
            assert [message.body async for message in reader.read(kept)] == OLD
            assert (await reader.times(kept)).records == COUNT
            with pytest.raises(CallerError):
                reader.read(kept, start=17)  # type: ignore[arg-type]

    asyncio.run(run())


# Answers of a server


class Answers(Proxies):
    """Gives answers in order, and keeps the requests."""

    def __init__(self, *answers: Status) -> None:
        self.answers, self.requests = list(answers), list[Read]()

    def ask(self, request: Any) -> Status:
        self.requests.append(request)
        return self.answers.pop(0)


def status(outcome: Outcome, **facts: Any) -> Status:
    return Status("s1", outcome, **facts)


def test_each_page_names_the_place_the_history_and_the_time_of_the_one_before() -> None:
    place = {"message": (LOG, 4), "history": "00000000000000bb", "since": 17}
    proxies = Answers(status(Outcome.SUCCESS, **place), status(Outcome.EMPTY))
    reader = RangeReader(proxies, "c", "t", "last:9", 99)
    assert not reader.page().ended
    assert reader.page().ended
    first, second = proxies.requests
    assert (first.after, first.start, first.before, first.history) == (None, "last:9", 99, "")
    assert (second.after, second.start, second.before, second.history) == ((LOG, 4), 18, 99, "00000000000000bb")
    assert parse_place(str(reader.place)) == reader.place == Place((LOG, 4), "00000000000000bb", 17)


def test_a_read_that_found_fewer_messages_than_asked_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    short = status(Outcome.SUCCESS, message=(LOG, 4), reason="fewer_records_than_asked")
    RangeReader(Answers(short), "c", "t", "last:9", 99).page()
    assert "t: fewer messages than last:9 were found; begin at a time instead" in caplog.text


@pytest.mark.parametrize("text", ["", "x", "-1~~0", f"{LOG}.4~x~0", f"{LOG}.4~~-1", f"{LOG}.4~~0~", f"{LOG}.4"])
def test_a_text_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_place(text)


def test_a_merged_history_ends_a_read_with_one_error() -> None:
    reader = RangeReader(
        Answers(status(Outcome.SUCCESS, message=(LOG, 4)), status(Outcome.AGAIN)), "c", "t", 0, "latest"
    )
    reader.page()
    with pytest.raises(HistoryChanged) as error:
        reader.page()
    assert error.value.position == f"{LOG}.4"


def test_a_read_continues_behind_lost_messages() -> None:
    lost = status(Outcome.LOST, first=(LOG, 2), message=(LOG, 4), reason="damaged")
    proxies = Answers(lost, status(Outcome.EMPTY))
    reader = RangeReader(proxies, "c", "t", 0, "latest")
    with pytest.raises(DataLoss) as error:
        reader.page()
    assert (error.value.first, error.value.last) == (f"{LOG}.2", f"{LOG}.4")
    assert str(error.value) == f"t: records {LOG}.2 to {LOG}.4 are lost (damaged); skip_lost passes over them"
    assert reader.page().ended
    assert proxies.requests[1].after == (LOG, 4)


@pytest.mark.parametrize("outcome", [Outcome.GONE, Outcome.BEHIND])
def test_messages_that_were_let_go_during_a_read_end_it(outcome: Outcome) -> None:
    reader = RangeReader(Answers(status(outcome, first=(LOG, 9))), "c", "t", (LOG, 3), "latest")
    with pytest.raises(StartGone) as error:
        reader.page()
    assert error.value.oldest == f"{LOG}.9"


def test_a_server_of_an_earlier_release_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Proxies, request: Any) -> Status:
        raise Refused("read", "t", "READ insists on '!from=@0', which this release does not know")

    monkeypatch.setattr(Answers, "ask", refuse)
    with pytest.raises(Refused, match="upgrade them first"):
        RangeReader(Answers(), "c", "t", 0, "latest").page()
    with pytest.raises(Refused, match="upgrade them first"):
        module.read_times(Answers(), "c", "t")


# Starts in texts


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", 0),
        ("latest", "latest"),
        ("last:7", "last:7"),
        ("-1h", 1_699_996_400_000_000),
        ("-90s", 1_699_999_910_000_000),
        ("2023-11-01T00:00Z", 1_698_796_800_000_000),
        ("2023-11-01T01:00+01:00", 1_698_796_800_000_000),
        (f"{LOG}.4", (LOG, 4)),
    ],
)
def test_a_start_is_read_from_a_text(text: str, start: Start) -> None:
    assert parse_start_text(text, 1_700_000_000.0) == start


@pytest.mark.parametrize(
    "text", ["17", "-17", "2026-11-01", "2026-11-01T00:00", "2026-99-01T00:00Z", "last:0", "x", ""]
)
def test_a_text_that_is_no_start_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CallerError, match=r"^--start") as error:
        parse_start_text(text, 0.0, "--start")
    assert "\n" not in str(error.value)


def test_an_end_is_read_from_a_text() -> None:
    assert parse_stop_text("now", 1_700_000_000.0) == 1_700_000_000_000_000
    assert parse_stop_text(None, 0.0) == "latest"
    with pytest.raises(CallerError):
        parse_stop_text("last:3", 0.0)


def test_a_start_is_described() -> None:
    assert [describe(start) for start in (0, 1_793_491_200_000_000, "last:7", (LOG, 4))] == [
        "earliest",
        "2026-11-01T00:00:00Z",
        "last:7",
        f"{LOG}.4",
    ]
