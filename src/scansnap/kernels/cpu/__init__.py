"""Compiled CPU kernels, called through ctypes (which lets go of the interpreter lock, so threads run at once).

``library`` finds and calls them; ``sampling`` draws data, ``fused`` and ``adam`` make updates, ``step`` is a training
step of the ablation study, ``attention`` takes statistics of attention. Where the package was installed without a
compiler everything runs through torch, more slowly and to the same numbers.
"""
