"""Consumer groups: what each member may work on, without sockets, files or clocks."""
