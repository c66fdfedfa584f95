"""Runs that several figures share, their cache, and their curves."""
