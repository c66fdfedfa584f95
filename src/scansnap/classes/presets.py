"""What can be set in the presets of sequence classes: parameters of ``SequenceClasses.synthetic`` and ``zipf``."""

from __future__ import annotations

from typing import Annotated

from numpy.typing import ArrayLike

from scansnap.knobs import Knob, Page

Queries = Annotated[int, Knob("Different last tokens; each has its own row of attention logits.", least=1,
                              page=Page("Queries", low=1, high=16, cap="classes"))]  # fmt: skip
NextPerQuery = Annotated[int, Knob("Classes that share a query.", least=1,
                                   page=Page("Next tokens per query", low=1, high=8, cap="classes"))]  # fmt: skip
Common = Annotated[int, Knob("Tokens in the context of every class: they tell nothing.",
                             page=Page("Common tokens", low=0, high=40, cap="tokens"))]  # fmt: skip
CommonPerQuery = Annotated[int, Knob("Tokens shared by the classes of one query only.",
                                     page=Page("Common per query", low=0, high=20, cap="tokens"))]  # fmt: skip
Distinct = Annotated[int, Knob("Tokens that occur in one class only: they tell it.",
                               page=Page("Distinct tokens", low=0, high=40, cap="tokens"))]  # fmt: skip
CommonWeight = Annotated[float, Knob(
    "How often a common token occurs, against 1 for the most frequent distinct one.", above=0,
    page=Page("Weight of common tokens", low=0.1, high=10.0, log=True, least=1e-6, most=1e6))]  # fmt: skip
DistinctWeights = Annotated[ArrayLike | None, Knob(
    "One number per distinct token; left out: evenly from 0.1 to 1.", kind="text", form="finite numbers above 0",
    page=Page("Weights of distinct tokens", words={"none": "even"}))]  # fmt: skip
Unused = Annotated[int, Knob("Tokens in no context, which make the vocabulary larger.",
                             page=Page("Unused tokens", low=0, high=2000, cap="tokens"))]  # fmt: skip
Vocab = Annotated[int, Knob("Number of tokens.", least=3,
                            page=Page("Vocabulary", "M", 50, 2000, log=True, cap="tokens"))]  # fmt: skip
Classes = Annotated[int, Knob("Next tokens to tell apart; they share one query.", least=1,
                              page=Page("Classes", "K", 2, 20))]  # fmt: skip
Exponent = Annotated[float, Knob("Word frequencies fall as rank to minus this.", least=0,
                                 page=Page("Zipf exponent", low=0.0, high=2.0, most=10.0))]  # fmt: skip
Overlap = Annotated[float, Knob("Share of the probability on common tokens.", least=0, most=1,
                                page=Page("Overlap", low=0.0, high=1.0))]  # fmt: skip
Shuffle = Annotated[int, Knob("Which token has which frequency.", page=Page("Shuffle", most=2**53 - 1))]
