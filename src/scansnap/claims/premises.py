"""What the paper's statements assume, as names of assumptions (see theory/assumptions.py)."""

ASSUMPTION_2 = ("weak overlap", "overlap not degenerate", "vocabulary larger than classes squared")
THEOREM_1 = (
    "long sequences", "fast decoder", *ASSUMPTION_2, "large vocabulary", "eta_y not too small", "eta_y below 1",
    "uniform classes", "many steps",
)  # fmt: skip
