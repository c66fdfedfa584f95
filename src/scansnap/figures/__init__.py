"""Figures: one file each, ``compute()`` (tidy data) apart from ``draw()`` (matplotlib)."""
