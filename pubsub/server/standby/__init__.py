"""Two members of one server: what the primary commits is on the standby's disk before anybody is told."""
