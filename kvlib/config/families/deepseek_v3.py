"""DeepSeek-V3 and R1 (arXiv:2412.19437): V2 with another way to balance its experts."""

from __future__ import annotations

from kvlib.config.families import deepseek_v2
from kvlib.config.family import Family, classes

FAMILY = Family(classes("DeepseekV3"), deepseek_v2.shape, lacks=deepseek_v2.FAMILY.lacks)
