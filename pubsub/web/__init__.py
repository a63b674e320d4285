"""The HTTP server of the gateway and of reliable HTTP: parsing, connections, bodies. It needs the extra `http`."""
