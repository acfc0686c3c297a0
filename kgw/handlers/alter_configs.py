"""AlterConfigs, key 33, versions 0 to 2: replace all settings of a topic, or of the broker.

Behaviour:
- a setting that the request leaves out goes back to its default; IncrementalAlterConfigs keeps such
  settings;
- can change the settings of topics, and the broker settings that can change at run time. If a
  setting is unknown or its value is not supported, the resource is refused with INVALID_CONFIG, and
  none of its settings changes;
- a resource or a setting that is named twice, and a null value, are INVALID_REQUEST, whether the
  client has the right or not. Changes are durable before the answer.

v0: KIP-133. v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.config_resources import ChangeConfigs, rights_on_configs
from kgw.protocol.messages.alter_configs import AlterConfigsResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.partitions.topics.manager import ConfigChange
    from kgw.protocol.messages.alter_configs import AlterConfigsResource


class AlterConfigs(ChangeConfigs):
    response_type = AlterConfigsResponse
    rights = rights_on_configs(AclOperation.ALTER_CONFIGS)

    def change(self, asked: AlterConfigsResource) -> ConfigChange:
        return lambda _: {setting.name: setting.value for setting in asked.configs}
