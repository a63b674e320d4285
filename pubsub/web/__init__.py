"""The HTTP server that the gateway and reliable HTTP share: parsing, connections, bodies. Needs the extra `http`."""
