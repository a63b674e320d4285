"""Which of two members serves: ballots at the proxies, the time to try one, and proxies that lost their promises."""
