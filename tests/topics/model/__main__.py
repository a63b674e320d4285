"""Random models of topics that can be looked back into (rules T1 to T29).

python -m tests.topics.model [MODEL] [--runs N] [--seed S] [--without RULE | --each]
"""

from __future__ import annotations

import argparse

from tests.topics.model.exploring import explore
from tests.topics.model.models import MODELS
from tests.topics.model.rules import all_but


def main() -> None:
    """Parse the arguments and explore."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=MODELS, default="looking_back")
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--each", action="store_true", help="leave out one rule after the other")
    given = parser.parse_args()
    model, rules = MODELS[given.model]
    seeds = range(given.seed, given.seed + given.runs)
    for names in [tuple(given.without), *((name,) for name in (rules if given.each else ()))]:
        found = explore(model, seeds, all_but(rules, *names))
        kinds = {kind: f"{count}, first seed {found.seeds[kind]}" for kind, count in found.kinds.items()}
        title = f"without {', '.join(names)}" if names else "all rules"
        figures = "" if names else f"; {dict(sorted(found.figures.items()))}"
        print(f"{title:<20} {found.runs} of {given.runs}: {kinds or 'clean'}{figures}", flush=True)


if __name__ == "__main__":
    main()
