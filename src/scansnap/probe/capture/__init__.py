"""Capture the attention that any model computes in a forward pass."""

from scansnap.probe.capture.call import AttentionCall as AttentionCall
from scansnap.probe.capture.call import AttentionRows as AttentionRows
from scansnap.probe.capture.call import DotProducts as DotProducts
from scansnap.probe.capture.watcher import AttentionWatcher as AttentionWatcher
from scansnap.probe.capture.watcher import watch_attention as watch_attention
