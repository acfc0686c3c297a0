"""The kinds of groups that there are, by the type that ListGroups names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.groups.classic import CLASSIC_KIND
from kgw.groups.requests import CLASSIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.groups.machine import GroupKind

KINDS: Mapping[str, GroupKind] = {CLASSIC: CLASSIC_KIND}
