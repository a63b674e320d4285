"""What everything stands on: clocks, limits, intervals, liveness; it imports nothing of ours but the errors."""
