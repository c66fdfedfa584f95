"""The ablation study between the paper's model and a transformer, one component at a time.

:func:`scansnap.run_dial` measures it. To add your own component, use :class:`Component`, :func:`register_component` and
:func:`register_attention`.
"""

from scansnap.dial.components import Component, Flags, register_attention, register_component
from scansnap.dial.study import AblationStudy

__all__ = ["AblationStudy", "Component", "Flags", "register_attention", "register_component"]
