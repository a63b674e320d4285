"""Take up the requests of commands that run beside this client, about its dead letters.

`process` looks for them at its start, and once a second while it waits.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pubsub.client.flows.redriving import Redriving
from pubsub.client.storage import letter_requests as files
from pubsub.errors import CallerError, PubsubError

_log: Final = logging.getLogger("pubsub.client")


class LetterRequests:
    """The requests to one client.

    Args:
        redriving: carries them out.

    Attributes:
        at: time of the next look, on the monotonic clock; infinity for a client without files.
    """

    def __init__(self, redriving: Redriving) -> None:
        self._redriving = redriving
        folder = redriving.session.store.folder
        self._folder = None if folder is None else files.folder_of(Path(redriving.session.store.path))
        self.at = float("inf") if folder is None else float("-inf")

    def take_up(self, now: float) -> None:
        """Carry out the requests that are there, unless it is too early to look again. The lock is not held."""
        if now < self.at or self._folder is None or self._redriving.session.over:
            return
        self.at = now + files.LOOK_SECONDS
        for path in files.waiting(self._folder):
            request = files.take_up(path)
            if request is not None:
                files.answer(path, self._answer(request))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            done = self._carry_out(request)
        except PubsubError as error:
            return {"error": str(error), "exit_code": error.exit_code}
        except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
            return {"error": f"the request is malformed: {error}", "exit_code": CallerError.exit_code}
        _log.info("client %s: a command about dead letters: %d of them", self._redriving.session.name, done)
        return {"done": done}

    def _carry_out(self, request: dict[str, Any]) -> int:
        topic = request.get("topic")
        if "purge" in request:
            return self._redriving.purge(timedelta(seconds=request["purge"]), topic)
        since = request.get("since")
        when = None if since is None else datetime.fromtimestamp(since, UTC)
        return self._redriving.redrive(request["redrive"], topic, when, request.get("to"))
