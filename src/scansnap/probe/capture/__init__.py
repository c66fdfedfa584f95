"""Seeing the attention that a model computes, whoever wrote it, while it runs one forward pass."""

from scansnap.probe.capture.call import AttentionCall as AttentionCall
from scansnap.probe.capture.call import Products as Products
from scansnap.probe.capture.call import Rows as Rows
from scansnap.probe.capture.watching import watching as watching
