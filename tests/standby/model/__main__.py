"""A random model of a server with a standby: the promises of its rules, and the results without one of them.

    python -m tests.standby.model [runs] [first seed]               all rules, this number of runs
    python -m tests.standby.model many [runs] [first] [processes]   the same in several processes, and a table of it
    python -m tests.standby.model mutants [runs each] [first]       every rule left out in turn; each must be caught
    python -m tests.standby.model scenes [seeds each]               scenes for rules that chance breaks too seldom
    python -m tests.standby.model seed N [rule left out]            one run, with its history
    python -m tests.standby.model shipped …                         any of these, with the shipped code of the register

Two members (A, B) hold copies of one store. One to three proxies are acceptors of its register and forward requests.
Publishers put chains; a subscriber subscribes, gets and leaves; another server may take the topic, or give it. Messages
are lost, late, doubled and overtake each other; links are cut in one direction or both. Processes are killed, hosts
lose power and unsynced data, proxies lose their disk, and a commit finds the disk full. Then the network heals,
possibly with one member and some proxies gone permanently. The clients' own history is checked against the log that is
served at the end. Time is a counter; time-outs matter for liveness only.
"""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager

from tests.standby import breakages
from tests.standby.model.exploring import Found, all_but, explore, explore_in
from tests.standby.model.rules import RULES, Rules
from tests.standby.model.scenes import SCENES
from tests.standby.model.world import World
from tests.standby.shipped import ShippedWorld


def number(args: list[str], place: int, default: int) -> int:
    return int(args[place]) if len(args) > place else default


def without(name: str, shipped: bool) -> tuple[AbstractContextManager[None], Rules]:
    """A rule left out: of the shipped code where that keeps it, else of the model's own."""
    if shipped and name in breakages.RULES:
        return breakages.broken(name), all_but()
    return contextlib.nullcontext(), all_but(name)


def main(args: list[str]) -> None:
    shipped = args[:1] == ["shipped"]
    args, world_class = args[shipped:], ShippedWorld if shipped else World
    match args[0] if args else "":
        case "seed":
            broken, rules = without(args[2] if len(args) > 2 else "", shipped)
            with broken:
                print(world_class(int(args[1]), rules, trace=True).run().objections)
        case "many":
            runs, found = number(args, 1, 200_000), Found()
            for found in explore_in(number(args, 3, 2), number(args, 2, 0), runs, world_class):
                if found.runs % 10_000 == 0:
                    print(f"{found.runs} runs, objected to: {dict(found.kinds)} {found.seeds}", flush=True)
            print(found.table())
            sys.exit(bool(found.kinds))
        case "mutants":
            for name in RULES:
                broken, rules = without(name, shipped)
                with broken:
                    found = explore(number(args, 2, 0), number(args, 1, 3000), rules, world_class, enough=5)
                print(f"without {name:<13} {found}", flush=True)
        case "scenes":
            for name, scene in SCENES.items():
                seeds = range(number(args, 1, 40))
                kept = sum(bool(scene(all_but(), seed, world_class)) for seed in seeds)
                broken, rules = without(name, shipped)
                with broken:
                    left = sum(bool(scene(rules, seed, world_class)) for seed in seeds)
                print(f"{name:<13} of {len(seeds)} seeds objected to: with all rules {kept}, without it {left}")
        case _:
            print("all rules", explore(number(args, 1, 0), number(args, 0, 2000), all_but(), world_class))


if __name__ == "__main__":
    main(sys.argv[1:])
