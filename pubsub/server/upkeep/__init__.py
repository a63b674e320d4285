"""Background work: deletion of batches, and upkeep of staged pieces."""
