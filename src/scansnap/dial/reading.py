"""How a model is read: its T = ∞ loss, attention on tokens and attention logits of (query, key) tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scansnap.dial.data import Task
from scansnap.dial.model import Output


@dataclass(frozen=True)
class Reading:
    """A model read on its task's reading batch; heads as the second dimension."""

    loss: np.ndarray  # (R,) at T = ∞
    attention: np.ndarray  # (R, H, K, M)
    z: np.ndarray  # (R, H, Q, M) attention logits of query and key tokens, averaged over positions


class Reader:
    """Reads what models give on the reading batch of a task; what it needs of the task is on the device once."""

    def __init__(self, task: Task) -> None:
        self.task, self.batch = task, task.reading
        of = task.read_class.cpu().numpy()
        queries, row = np.unique(task.classes.query[of], return_inverse=True)
        self.n_queries, self.row = len(queries), torch.as_tensor(row, device=task.device)
        p = task.classes.p_class[of] * task.n_classes / len(of)
        self.p = torch.tensor(p, dtype=task.dtype, device=task.device)  # of every sequence that is read, (K·turns,)
        self.following = task.next_distribution[task.read_class]
        self.seen = self.batch.bias > -torch.inf  # (1, B, Q, S)
        self.times = self.by_query(self.by_token(self.seen[:, None].to(task.dtype))).clamp_min(1)

    def log_alpha(self, out: Output) -> Tensor:
        """(R, K·turns, M) of the query at the end of every sequence that is read."""
        return torch.log_softmax(self.last(out.logits), dim=-1)

    def last(self, logits: Tensor) -> Tensor:
        """(R, K·turns, M) from logits of all queries."""
        return logits[:, 0] if not self.task.flags.sequences else logits[:, :, -1]

    def loss(self, out: Output) -> Tensor:
        """T = ∞ loss (R,)."""
        return -((self.following * self.log_alpha(out)).sum(-1) * self.p).sum(-1)

    def attention(self, attention: Tensor) -> Tensor:
        """(R, H, K, M): attention of each class's query on tokens, its places added up, over turns averaged."""
        on_tokens = self.by_token(attention)
        r, h, rows, m = on_tokens.shape
        c = on_tokens.reshape(r, h, self.task.n_classes, rows // self.task.n_classes, m).mean(3)
        return c / c.sum(-1, keepdim=True)

    def z(self, scores: Tensor) -> Tensor:
        """(R, H, Q, M): logits of (query token, key token), averaged over places; 0 where they never meet."""
        return self.by_query(self.by_token(torch.where(self.seen[:, None], scores, 0.0))) / self.times

    def by_query(self, values: Tensor) -> Tensor:
        """(R, H, K·turns, M) added up over the rows of a query token, as (R, H, Q, M)."""
        out = torch.zeros(*values.shape[:2], self.n_queries, values.shape[-1], dtype=values.dtype, device=values.device)
        return out.index_add_(2, self.row, values)

    def by_token(self, values: Tensor) -> Tensor:
        """Values of keys (R, H, B, Q, S) of the last query of each row, added up by token: (R, H, K·turns, M)."""
        if not self.task.flags.sequences:
            return values[:, :, 0]  # the keys are the tokens
        last = values[:, :, :, -1]  # (R, H, B, S)
        out = torch.zeros(*last.shape[:3], self.task.vocab_size, dtype=last.dtype, device=last.device)
        return out.scatter_add_(-1, self.batch.keys[:, None].expand_as(last), last)
