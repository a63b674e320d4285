"""What keeps answers out that are not about a subscription as it is now, and requests away from a wrong holder."""

from __future__ import annotations


class Fence:
    """Around one subscription.

    Attributes:
        log: the log that answered last; avoid: one whose holder does not know this subscription. Requests name both.
        generation: rises with every request; an answer counts only while this is what it was.
        emptied: how often everything that was here was thrown away. What was taken in hand before is not ours then.
    """

    def __init__(self, log: str = "") -> None:
        self.log, self.avoid = log, ""
        self.generation = self.emptied = 0

    def raise_for_request(self) -> int:
        """A request goes out: answers to those before count no more; the generation of its own answer."""
        self.generation += 1
        return self.generation

    def empty(self) -> None:
        """Everything that was here is thrown away: no answer to an earlier request counts."""
        self.generation += 1
        self.emptied += 1

    def admits(self, generation: int) -> bool:
        """Whether an answer of this generation counts."""
        return generation == self.generation

    def answered(self, log: str) -> None:
        """A holder has answered that knows the subscription. `log`: its log, where it says it."""
        self.log, self.avoid = log or self.log, ""

    def shun(self, log: str) -> None:
        """The holder of this log does not know the subscription."""
        self.avoid = log

    def follow(self, log: str) -> None:
        """The topic went to the holder of this log, where the answer says it."""
        self.log = log or self.log
