"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Time limits are pytest's: a slow machine must not turn a property into a flaky test.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", parent=settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
