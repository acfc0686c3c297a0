"""AlterConfigs, key 33, versions 0 to 2: replace all settings of a topic, or of the broker.

Behaviour:
- what the request leaves out goes back to its default, as it has always been for this API;
  IncrementalAlterConfigs is the one that leaves the rest alone;
- a topic's settings, and the broker's that can change while it runs; unknown ones, and values that
  are not served, are refused with INVALID_CONFIG, and nothing of that resource is changed;
- a resource or a setting twice is INVALID_REQUEST. Durable before it is answered.

v0: KIP-133. v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import ChangeConfigs
from kgw.protocol.messages.alter_configs import AlterConfigsResponse

if TYPE_CHECKING:
    from kgw.partitions.topics.catalog import ConfigChange
    from kgw.protocol.messages.alter_configs import AlterConfigsResource


class AlterConfigs(ChangeConfigs):
    response_type = AlterConfigsResponse

    def change(self, asked: AlterConfigsResource) -> ConfigChange:
        for setting in asked.configs:
            if setting.value is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{setting.name}: a null value is refused"
                )
        return lambda _: {setting.name: setting.value for setting in asked.configs}
