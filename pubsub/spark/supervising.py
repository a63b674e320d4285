"""Runs the queries of a pipeline until they end, and starts them again after errors that pass.

A query that is started again continues from its checkpoint, with each message once. It is started again after an answer
that did not come in time and after the end of a Python worker, but not after an error that would come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from pubsub.errors import PubsubError, Unavailable
from pubsub.spark.pipelines import POLL_SECONDS, PipelineFailed, Totals, add_progress, failure

FIRST_PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0


@dataclass
class Restarts:
    """Decides whether a failed pipeline is started again.

    Args:
        limit: restarts one after another without a batch that was written between them.

    Attributes:
        count: restarts so far.
    """

    limit: int
    count: int = 0
    _batches: int = 0
    _row: int = 0

    def pause(self, error: PubsubError, batches: int) -> float | None:
        """Return the seconds to wait before the next start; None if there is none.

        Args:
            error: the reason.
            batches: batches written so far.
        """
        if batches > self._batches:
            self._batches, self._row = batches, 0
        passing = isinstance(error, Unavailable) or (isinstance(error, PipelineFailed) and error.transient)
        if not passing or self._row >= self.limit:
            return None
        self._row += 1
        self.count += 1
        return float(min(FIRST_PAUSE_SECONDS * 2 ** (self._row - 1), PAUSE_SECONDS_MAX))


@dataclass
class Supervision:
    """The run of a pipeline.

    Args:
        start: starts the queries; the first one's progress counts.
        tell: called after each batch.
        stop: returns True if the queries are to end.
        turn: called several times a second.
        failed: called with an error and the pause before the next start.
    """

    start: Callable[[], Sequence[StreamingQuery]]
    tell: Callable[[Totals], None]
    stop: Callable[[], bool]
    turn: Callable[[Totals], None]
    failed: Callable[[PubsubError, float], None]
    restarts: Restarts

    def run(self) -> Totals:
        """Return when the queries have ended.

        Raises:
            PubsubError: a query failed, and is not started again.
        """
        totals, begun = Totals(), time.monotonic()
        while True:
            try:
                self._follow(totals, begun)
            except PubsubError as error:
                pause = self.restarts.pause(error, totals.batches)
                if pause is None:
                    raise
                self.failed(error, pause)
                if self._wait(pause, totals):
                    continue
            totals.seconds = time.monotonic() - begun
            return totals

    def _wait(self, seconds: float, totals: Totals) -> bool:
        """Wait for a pause; return False if the pipeline is to end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.stop():
                return False
            self.turn(totals)
            time.sleep(POLL_SECONDS)
        return True

    def _follow(self, totals: Totals, begun: float) -> None:
        running: list[StreamingQuery] = []
        try:
            running = list(self.start())
            known = -1
            ended = False
            while not ended:
                ended = True
                for query in running:  # Each of them: another one may fail while the first goes on.
                    ended = bool(query.awaitTermination(POLL_SECONDS)) and ended  # type: ignore[arg-type]
                for batch in running[0].recentProgress:
                    if batch["batchId"] > known:
                        known = batch["batchId"]
                        add_progress(totals, batch)
                        totals.seconds = time.monotonic() - begun
                        self.tell(totals)
                self.turn(totals)
                if self.stop():
                    for query in running:
                        query.stop()
        except (StreamingQueryException, Py4JError) as error:
            raise failure(error) from error
        finally:
            for query in running:
                query.stop()
