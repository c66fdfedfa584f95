"""Runs under way: in worker processes, each with its clock and its film."""
