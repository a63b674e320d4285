"""Rounds of faults on all that keeps its state in one PostgreSQL, and an audit that shares no code with the product."""
