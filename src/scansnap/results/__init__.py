"""Labelled results: what every trajectory looks like, in memory and on disk."""
