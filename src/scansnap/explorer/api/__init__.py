"""The server: addresses, connections, refusals, and who may speak to it."""
