"""The proxy: forwards requests to the server that holds the topic."""
