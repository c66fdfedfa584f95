"""Figures: one file each, ``compute()`` (the numbers) apart from ``draw()`` (matplotlib)."""
