"""Maps of the rates that were computed already: the same for every pair of rates, and for every page that asks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from scansnap.checks import InputError
from scansnap.explorer.live.switchboard import Switchboard
from scansnap.explorer.pages import rates
from scansnap.explorer.protocol import LIMITS, Refused
from scansnap.explorer.setups.blueprint import Blueprint

_KEPT = 64  # of about two kilobytes


class Maps:
    """Computes each map once, however many ask for it at the same moment."""

    def __init__(self) -> None:
        self.made: OrderedDict[str, bytes] = OrderedDict()
        self.making: dict[str, asyncio.Lock] = {}

    async def get(self, switchboard: Switchboard, blueprint: Blueprint) -> bytes:
        """``MapSaid`` as JSON."""
        try:
            rates.check_map(blueprint)
        except InputError as error:
            raise Refused(422, "map", str(error)) from None
        key = rates.key(blueprint)
        lock = self.making.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self.made:
                    seconds = LIMITS["map_seconds"] + LIMITS["margin_seconds"]
                    self.made[key] = await switchboard.job(
                        {"kind": "map", "setup": blueprint.setup, "seconds": seconds}
                    )
                self.made.move_to_end(key)
                while len(self.made) > _KEPT:
                    self.made.popitem(last=False)
                return self.made[key]
        finally:
            if not lock.locked():
                self.making.pop(key, None)
