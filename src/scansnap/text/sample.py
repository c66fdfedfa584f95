"""Text from a trained model, token by token, the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from scansnap.checks import InputError, check_float, check_integer
from scansnap.checks.arrays import token_ids
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.progress import Progress
from scansnap.text.model import LanguageModel


def sample_tokens(
    model: LanguageModel,
    prompt: Sequence[int],
    n: int = 100,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    avoid: Sequence[int] = (),
    window: int = 35,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[int]:
    """``n`` tokens after the prompt. The model sees the last ``window`` tokens, as in training.

    temperature  divides the logits; 0 always takes the most probable token
    top_k        samples from the k most probable tokens only
    avoid        tokens that are never sampled, such as <unk>
    """
    tokens = token_ids("prompt", prompt, model.vocab_size).ravel().tolist()
    if not tokens:
        raise InputError("prompt", prompt, "at least one token")
    if model.describe().get("objective") == "masked":
        raise InputError("model", "a model of the masked objective", "a model that predicts the next token")
    check_integer("n", n)
    check_float("temperature", temperature, least=0)
    check_integer("window", window, least=1)
    k = model.vocab_size if top_k is None else check_integer("top_k", top_k, least=1)
    excluded = torch.as_tensor(token_ids("avoid", list(avoid), model.vocab_size).ravel()) if len(avoid) else None
    if excluded is not None and len(np.unique(excluded)) == model.vocab_size:
        raise InputError("avoid", "all tokens", "fewer tokens than the vocabulary has")
    generator = torch.Generator().manual_seed(check_integer("seed", seed))
    start = len(tokens)
    for done in range(n):
        inputs = torch.tensor([tokens[-window:]], device=model.device)
        logits = model.logits(inputs)[0, -1].double().cpu()  # (M,), sampled on the CPU: the same on every device
        if excluded is not None:
            logits[excluded] = -torch.inf
        tokens.append(_sample(logits, temperature, k, generator))
        if progress is not None:
            progress(done + 1, n)
    return tokens[start:]


def sample_text(model: LanguageModel, vocabulary: Vocabulary, prompt: str, n: int = 100, *, temperature: float = 1.0,
                top_k: int | None = None, unknown: bool = False, window: int = 35, seed: int = 0,
                progress: Progress | None = None) -> str:  # fmt: skip
    """The prompt and ``n`` further words, <unk> among them only if ``unknown``. An empty prompt begins a line."""
    if len(vocabulary) != model.vocab_size:
        raise InputError("vocabulary", f"{len(vocabulary)} words", f"the {model.vocab_size} words of the model")
    ids = vocabulary.encode(prompt).tolist()
    avoid = () if unknown else (vocabulary.unk,)
    sampled = sample_tokens(model, ids or [vocabulary.eos], n, temperature=temperature, top_k=top_k, avoid=avoid,
                            window=window, seed=seed, progress=progress)  # fmt: skip
    return vocabulary.decode([*ids, *sampled])


def _sample(logits: torch.Tensor, temperature: float, k: int, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    best, index = logits.topk(min(k, len(logits)))
    p = torch.softmax(best / temperature, 0)
    return int(index[torch.multinomial(p, 1, generator=generator)])
