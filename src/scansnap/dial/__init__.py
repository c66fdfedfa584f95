"""The ablation study between the paper's model and a transformer, one component at a time.

`scansnap.run_dial` measures it. To add your own component, use `Component`, `register_component` and
`register_attention`.
"""

from scansnap.dial.components import Component, Flags, register_attention, register_component
from scansnap.dial.study import AblationStudy

__all__ = ["AblationStudy", "Component", "Flags", "register_attention", "register_component"]
