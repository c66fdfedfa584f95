"""Our own statements: what holds where the paper's do not."""
