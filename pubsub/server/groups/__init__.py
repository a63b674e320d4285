"""Consumer groups: the work of each member, without sockets, files or clocks."""
