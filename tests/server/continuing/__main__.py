"""A random model of continuing: a client with an empty directory continues the subscription under its name.

    python -m tests.server.continuing [--runs N] [--seed S] [--without RULE | --each]

Requests and answers get late and lost, servers' clocks differ, they start again, split, merge and give the topic away;
directories are lost, or stay alive beside the next one and are taken back. Checked of each name: what was put after an
answered subscribe comes to some directory of it; a message is taken at most once without the mark; the marked ones
aside, a publisher's order goes across directories; nothing from before the subscription that is continued arrives.
Not modelled: proxies, time-outs, standbys, restored copies, named subscriptions, power cuts of a client.
"""

from __future__ import annotations

import argparse

from tests.server.continuing.exploring import explore
from tests.server.continuing.rules import RULES, all_but


def main() -> None:
    """Parse the arguments and explore."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", choices=RULES)
    parser.add_argument("--each", action="store_true", help="leave out one rule after the other")
    given = parser.parse_args()
    left_out = [""] if not given.without else [given.without]
    for name in [*left_out, *(RULES if given.each else ())]:
        found = explore(given.seed, given.runs, all_but(name))
        kinds = {kind: f"{count}, first seed {found.seeds[kind]}" for kind, count in found.kinds.items()}
        print(f"{f'without {name}' if name else 'all rules':<20} {kinds or 'clean'}; {dict(found.figures)}", flush=True)


if __name__ == "__main__":
    main()
