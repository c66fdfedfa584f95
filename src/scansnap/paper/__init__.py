"""The paper from new runs: figures, studies beyond it, and the report."""
