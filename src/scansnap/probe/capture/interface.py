"""placeholder"""
from contextlib import contextmanager
@contextmanager
def switched(model, mode):
    yield
