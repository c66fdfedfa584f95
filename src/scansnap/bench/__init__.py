"""What we claim about speed, measured: used by ``scansnap bench`` and by the scripts in ``benchmarks/``."""
