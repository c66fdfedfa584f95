"""Read from the updates of a transformer which entries its training steps dropped, on any device.

Without norms, feed-forward and W_O, and with W_Q, W_K, W_V at 0, the decoder's input is h = r∘U[x]√d, r the first mask
of a step. Both directions are then linear in r:

    decoder at 0      the softmax is uniform, and a target's row moves by η h/N more than a row that is no target
    embedding at 0    the softmax is uniform again, and U[x] moves by −η √d r∘(dL/dh), dL/dh = Dᵀ(1/M − e_n)/N

Every token is the input and the target of one position at most, so each row tells of one position.
"""

import math

import torch

from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings

M, B, T, D, P = 501, 8, 20, 64, 0.2
N = B * T
ETA = 3.0


def open_model(device, *, seed=0, precision="float32", graphs=True, dropout=P):
    """A transformer whose masks can be read."""
    settings = TransformerSettings(M, width=D, feed_forward=0, norm="none", positions="none", mixing=False, bias=True,
                                   dropout=dropout, clip=None, eta=ETA, seed=seed, precision=precision)  # fmt: skip
    return Transformer(settings, device, graphs=graphs)


def nothing(model):
    """All weights at 0, where they lie: a recorded step reads them there."""
    for name, tensor in model.tensors().items():
        if name != "step":
            tensor.zero_()


def batch(device):
    """Inputs 0 … N − 1, targets N … 2N − 1; the last token is neither."""
    tokens = torch.arange(N, device=device).view(B, T)
    return tokens, tokens + N


def forward_masks(model, steps):
    """(steps, N, D): what the training steps multiplied the embeddings with."""
    tensors, result = model.tensors(), []
    for _ in range(steps):
        nothing(model)
        tensors["embedding"].fill_(1)
        model.train_step(*batch(model.device))
        moved = tensors["decoder"][N : 2 * N] - tensors["decoder"][-1]  # (N, D) = η r √d/N
        result.append(moved.double().cpu() * N / (ETA * math.sqrt(D)))
    return torch.stack(result)


def backward_masks(model, steps):
    """(steps, N, D): what they multiplied the gradient of the embeddings with."""
    tensors, result = model.tensors(), []
    votes = torch.zeros(M, 1, device=model.device)
    votes[N : 2 * N] = 1  # D_nj = 1 for targets n, else 0, so that Dᵀ(1/M − e_n) = N/M − 1
    for _ in range(steps):
        nothing(model)
        tensors["decoder"].copy_(votes.expand(M, D))
        model.train_step(*batch(model.device))
        dh = (N / M - 1) / N
        moved = tensors["embedding"][:N]  # (N, D) = −η √d r dh
        result.append((moved / (-ETA * math.sqrt(D) * dh)).double().cpu())
    return torch.stack(result)


def check_dropout(device, precision):
    """Share, scale, both directions, what the masks depend on, and that evaluation has none."""
    steps = 6  # on CUDA the first as they come, the later ones recorded
    tolerance = 1e-3 if precision == "float32" else 2e-2
    masks = forward_masks(open_model(device, precision=precision), steps)
    dropped = masks.abs() < tolerance
    scale = torch.full_like(masks, 1 / (1 - P))
    torch.testing.assert_close(masks, torch.where(dropped, 0.0, scale), rtol=0, atol=tolerance)

    for (
        dropped_in_step
    ) in dropped:  # in each step: a share P, within 5 standard deviations; so the mean of the mask is 1
        error = 5 * math.sqrt(P * (1 - P) / dropped_in_step.numel())
        assert abs(float(dropped_in_step.double().mean()) - P) < error
    assert abs(float(masks.mean()) - 1) < 5 * math.sqrt(P / (1 - P) / masks.numel()) + tolerance
    for i in range(steps):  # drawn anew for each step: two agree no more than chance
        for j in range(i):
            same = float((dropped[i] == dropped[j]).double().mean())
            assert abs(same - (P**2 + (1 - P) ** 2)) < 0.03

    back = backward_masks(open_model(device, precision=precision), steps)
    torch.testing.assert_close(back, masks, rtol=0, atol=2 * tolerance)  # the gradient goes where the values went

    def again(**options):
        return forward_masks(open_model(device, precision=precision, **options), steps)

    assert torch.equal(again(), masks)
    assert torch.equal(again(graphs=False), masks)
    assert not torch.equal(again(seed=1), masks)

    trained = open_model(device, precision=precision)
    inputs, targets = batch(trained.device)
    for _ in range(3):
        trained.train_step(inputs, targets)
    without = open_model(device, precision=precision, dropout=0.0)
    for name, tensor in without.tensors().items():
        tensor.copy_(trained.tensors()[name])
    logits = trained.logits(inputs)
    assert torch.equal(logits, trained.logits(inputs))
    assert torch.equal(logits, without.logits(inputs))
