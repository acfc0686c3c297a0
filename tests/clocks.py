"""Clocks that are not right."""

from __future__ import annotations

from kgw.testing.clock import ManualClock


class WrongClock(ManualClock):
    """A clock whose wall time can be set wrong."""

    wrong_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wrong_by_ms
