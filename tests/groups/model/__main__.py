"""A random model of one consumer group: its rules, and the faults when one of them is left out.

python -m tests.groups.model [--runs N] [--seed S] [--without RULE | --each | --trace]

Two servers may hold the topic at once; the group is at one of them. Publishers put chains to either. Members take,
commit, crash, lose power or their disk, give back, put off, close and come back. Requests and answers are lost, late,
doubled and overtaken. Servers restart, fail over, are restored from a copy, and let go of old messages. An operator
releases, redrives, resumes and ends the group. In the end everything is delivered late, merged and worked off. Then the
effects are compared with the promises (docs/explanation/group-promises.md).

Not modelled: limits, clocks and heartbeats (a member is called silent at random, rightly or not), proxies beyond the
choice of a holder, publishers' power cuts, the register, puts of handlers, the gateway.
"""

from __future__ import annotations

import argparse
from random import Random

from tests.groups.model.rules import RULES
from tests.groups.model.world import STEPS, World
from tests.topics.model.exploring import explore
from tests.topics.model.rules import all_but


def main() -> None:
    """Parse the arguments and explore."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", action="append", default=[], choices=RULES)
    parser.add_argument("--each", action="store_true", help="leave out one rule after the other")
    parser.add_argument("--trace", action="store_true", help="print the events of one seed")
    given = parser.parse_args()
    if given.trace:
        steps = Random(given.seed).choice(STEPS)
        print(World(given.seed, all_but(RULES, *given.without), trace=True).run(steps).violations)
        return
    seeds = range(given.seed, given.seed + given.runs)
    for names in [tuple(given.without), *((name,) for name in (RULES if given.each else ()))]:
        found = explore(World, seeds, all_but(RULES, *names), steps=STEPS)
        kinds = {kind: f"{count}, first seed {found.seeds[kind]}" for kind, count in found.kinds.items()}
        title = f"without {', '.join(names)}" if names else "all rules"
        figures = "" if names else f"; {dict(sorted(found.figures.items()))}"
        print(f"{title:<20} {found.runs} of {given.runs}: {kinds or 'clean'}{figures}", flush=True)


if __name__ == "__main__":
    main()
