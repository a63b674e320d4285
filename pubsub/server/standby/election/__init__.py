"""The election between two members: ballots at the proxies, when to try one, and recovery of lost promises."""
