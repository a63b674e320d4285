"""Keep out answers about an earlier state of a subscription, and keep requests away from a wrong server.

The rule is docs/explanation/protocol.md, V9.
"""

from __future__ import annotations


class Fence:
    """The fence around one subscription.

    Attributes:
        log: the log that answered last; requests name it.
        avoid: a log at a server that does not know this subscription; requests name it.
        generation: rises with every request; an answer counts only for the present value.
        emptied: number of times that all received records were dropped; records taken before that are no longer valid.
    """

    def __init__(self, log: str = "") -> None:
        self.log, self.avoid = log, ""
        self.generation = self.emptied = 0

    def raise_for_request(self) -> int:
        """Begin a request: return the generation of its answer; answers to earlier requests no longer count."""
        self.generation += 1
        return self.generation

    def empty(self) -> None:
        """Drop all received records, and ignore answers to earlier requests."""
        self.generation += 1
        self.emptied += 1

    def admits(self, generation: int) -> bool:
        return generation == self.generation

    def answered(self, log: str) -> None:
        """Record an answer from a server that knows the subscription. `log`: its log, if the answer names it."""
        self.log, self.avoid = log or self.log, ""

    def shun(self, log: str) -> None:
        """Avoid the server of this log, which does not know the subscription."""
        self.avoid = log

    def follow(self, log: str) -> None:
        """Follow the topic to the server of this log, if the answer names one."""
        self.log = log or self.log
