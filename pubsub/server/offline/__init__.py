"""Commands on a store while no server runs on it."""
