"""The lemmas, corollary and remarks of the paper's appendix, and the equations of its proof of Theorem 1."""
