"""Statements about how fast decoder and attention learn, and in which order."""
