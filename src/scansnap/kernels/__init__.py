"""Steps and draws once more, compiled: for CPUs (C) and for CUDA (Triton). An acceleration, never the only way."""
