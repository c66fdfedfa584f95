"""Questions on real text that go beyond the paper's figures."""
