from __future__ import annotations

from kgw.backend.embedded.write.disk_room import DiskRoom
from kgw.testing.faults import SimulatedFs


def test_room_that_was_found_is_spent_to_its_last_byte_before_the_disk_is_asked_again() -> None:
    """Others fill it meanwhile: who asks again is told of that."""
    fs = SimulatedFs(capacity_bytes=1_100)
    room = DiskRoom(fs, "/", 1_000)
    assert room.look() is None
    fs.capacity_bytes = 1_000
    room.spend(60)
    assert [True, False] == [room.has_spare(size_bytes) for size_bytes in (40, 41)]
    assert not room.has_spare(40)
