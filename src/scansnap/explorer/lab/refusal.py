"""A request that is not served."""

from __future__ import annotations


class Refused(Exception):
    """HTTP status, the control to show it at, and one sentence."""

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(message)
        self.status, self.field, self.message = status, field, message
