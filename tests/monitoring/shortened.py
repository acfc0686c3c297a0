"""The alerts as a run of some minutes can see them: the same expressions over a shorter time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deploy.monitoring.alerts import Alert

LASTS_S: Final = 10
LASTS_LONG_S: Final = 30
RANGE_S: Final = 30


def shortened(alert: Alert) -> Alert:
    """Return a rule with a `for` of minutes of 10 s, one of hours of 30 s, and ranges of 30 s.

    What is compared with what, and with which number, stays as it is.
    """
    expr = re.sub(r"\[\d+[smhd]\]", f"[{RANGE_S}s]", alert.expr)
    expr = re.sub(r"\boffset \w+", f"offset {RANGE_S}s", expr)
    lasts_s = LASTS_LONG_S if alert.lasts.endswith("h") else LASTS_S
    return alert._replace(expr=expr, lasts=f"{lasts_s}s" if alert.lasts else "")
