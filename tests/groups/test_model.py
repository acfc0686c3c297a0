"""G1: random histories of one group; the invariants hold after every step."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups.model import GroupModel

SEQUENCES = int(os.environ.get("GROUP_SEQUENCES", "2000"))
FIRST_SEED = int(os.environ.get("GROUP_FIRST_SEED", "0"))
STEPS = 50
CHUNKS = 8


def run(random: Random, steps: int) -> None:
    """Run one history in a loop of its own."""
    asyncio.run(GroupModel(random).run(steps), debug=False)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(SEQUENCES)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_invariants_hold_in_random_histories(chunk: int) -> None:
    """I1 to I10 hold in every history; GROUP_SEQUENCES says how many there are."""

    async def histories() -> None:
        for seed in range(FIRST_SEED + chunk, FIRST_SEED + SEQUENCES, CHUNKS):
            try:
                await GroupModel(Random(seed)).run(STEPS)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise

    asyncio.run(histories(), debug=False)


@pytest.mark.slow
@given(random=st.randoms(use_true_random=False))
def test_invariants_hold_and_failures_shrink(random: Random) -> None:
    """The same histories from Hypothesis, which shortens one that fails."""
    run(random, STEPS)
