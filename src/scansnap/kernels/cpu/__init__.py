"""Compiled CPU kernels, called through ctypes, which releases the interpreter lock.

``library`` finds and calls them; ``sampling`` draws data, ``fused`` and ``adam`` compute updates, ``step`` a training
step of the ablation study, ``attention`` statistics of attention. Without them, for example if the package was
installed without a compiler, torch computes the same numbers more slowly.
"""
