"""Puts: what a server does with a batch of records, and which limits keep it from taking one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX, OFFSET_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import check_batch
from pubsub.protocol.messages import Outcome, Put, Status
from pubsub.server.state.replies import Origin
from pubsub.server.topic import changes as c
from pubsub.server.topic.topic import Topic, Verdict, judge

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore


class Puts:
    """The puts of one server.

    Args:
        core: the server.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._taken: dict[tuple[int | str, bytes, str, str], int] = {}
        """Where in the loop's answers the one to cumulative puts stands: by link, origin, topic and publisher."""

    def sent(self) -> None:
        """The loop's answers are on their way."""
        self._taken.clear()

    def put(self, origin: Origin, put: Put, now: float, whole: bool = False) -> None:
        """PUT: take it, or say why not.

        Args:
            whole: every proxy has answered, for this very put, that no other server holds the topic.
        """
        core = self._core
        if not 0 < put.count <= BATCH_RECORDS_MAX or put.counter + put.count > NUMBER_MAX or not put.counter:
            core.refuse(origin, "counter or count out of range", now)
            return
        topic = core.topics.get(put.topic)
        if topic is not None and topic.frozen:
            core.answer(origin, Outcome.MOVED)
            return
        name = f"{put.sender}/{put.publisher}"
        number = core.publishers.find(name)
        last = topic.last.get(number, 0) if topic and number is not None else 0
        log = topic.open.id if topic else ""
        verdict = judge(last, put.counter, put.count, put.previous)
        if verdict is Verdict.GAP and core.given_up.gap(origin, put, topic, whole):
            return
        if verdict is not Verdict.TAKE:
            core.counters[verdict.value] += 1
            outcome = Outcome.DUPLICATE if verdict is Verdict.DUPLICATE else Outcome.GAP
            core.answer(origin, outcome, last=last, log=log)
            return
        obstacle = self._obstacle(put, topic, number)
        if obstacle:
            core.answer(origin, Outcome.FULL, reason=obstacle, last=last, log=log)
            return
        try:
            check_batch(put.body, put.count, put.checksum)
        except DecodeError as error:
            core.refuse(origin, error.reason, now)
            return
        if put.whole and not whole:
            if not self.ask_for(origin, put):
                core.answer(origin, Outcome.BUSY, reason="too_many_operations_wait_for_a_whole_topic")
            return
        topic = topic or core.create(put.topic)
        self._append(topic, core.publishers.number(name), put, now)
        status = Status(core.settings.id, Outcome.SUCCESS, last=put.counter + put.count - 1, log=topic.open.id)
        if put.cumulative:
            place = self._taken.setdefault((origin.link, origin.origin, put.topic, name), len(core.answers))
            if place < len(core.answers):  # `last` says of the puts before, taken in this loop too, all there is.
                core.answers[place] = origin, status
                return
        core.answers.append((origin, status))

    def _obstacle(self, put: Put, topic: Topic | None, publisher: int | None) -> str:
        """Which limit keeps a put from being taken, or "" for none."""
        core = self._core
        settings = core.settings
        if core.full:
            return "disk"
        if topic is None:
            if publisher is None and core.publishers.full:
                return "STORE_PUBLISHERS_MAX"
            return "topics_max" if len(core.topics) >= settings.topics_max else ""
        if (publisher is None or publisher not in topic.last) and len(topic.last) >= settings.publishers_max:
            return "publishers_max"
        if publisher is None and core.publishers.full:
            return "STORE_PUBLISHERS_MAX"
        if topic.open.end + put.count > OFFSET_MAX:
            return "OFFSET_BITS"
        if topic.backlog_bytes + len(put.body) > settings.backlog_bytes_max:
            core.measure(topic)
            if topic.backlog_bytes + len(put.body) > settings.backlog_bytes_max:
                return "backlog_bytes_max"
        return ""

    def ask_for(self, origin: Origin, put: Put, otherwise: Outcome = Outcome.BUSY) -> bool:
        """Have a put judged again once the topic is known to be whole; False where too many wait.

        Args:
            otherwise: what it is answered where the topic is not.
        """
        core = self._core

        def then(whole: bool, now: float) -> None:
            topic = core.topics.get(put.topic)
            if whole:
                self.put(origin, put, now, whole=True)
            else:
                number = core.publishers.find(f"{put.sender}/{put.publisher}")
                core.answer(
                    origin,
                    otherwise,
                    reason="topic_is_not_known_to_be_whole",
                    last=topic.last.get(number or 0, 0) if topic else 0,
                    log=topic.open.id if topic else "",
                )

        return core.wholeness.ask(put.topic, then, len(put.body))

    def _append(self, topic: Topic, publisher: int, put: Put, now: float) -> None:
        core = self._core
        offset, total = topic.append(publisher, put.counter, put.count, len(put.body))
        stamp = core.stamps.next(now)
        core.marks.rows.append(
            c.BatchAppended(
                topic.open.number, offset, put.count, publisher, put.counter, stamp, put.checksum, total, put.body
            )
        )
        core.marks.last(topic.name, publisher)
        core.counters["records"] += put.count
        core.retention.appended(topic.name, len(put.body), now)
        core.polls.appended(topic.name)
