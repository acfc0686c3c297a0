"""G1's histories, drawn by Hypothesis; `tests.campaigns.group_model` runs them by the thousand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.groups.model import GroupModel

if TYPE_CHECKING:
    from random import Random

STEPS = 50


@pytest.mark.slow
@settings(max_examples=50)  # the campaign runs 400
@given(random=st.randoms(use_true_random=False))
def test_invariants_hold_and_failures_shrink(random: Random) -> None:
    """I1 to I12 hold in every history; Hypothesis shortens one that fails."""
    asyncio.run(GroupModel(random).run(STEPS), debug=False)
