"""Two members of one server: the standby has each commit of the primary on its disk before the primary answers."""
