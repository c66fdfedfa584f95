"""Drawings of single results, for the command line."""
