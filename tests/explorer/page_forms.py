"""What the page says of classes and of a pasted text, from the package: references for its engine."""

import numpy as np

from scansnap.checks import InputError
from scansnap.corpus import passage
from scansnap.explorer.limits import LIMITS
from scansnap.explorer.page import as_json

SHOWN = 60  # pairs to choose from


def offer(text, pairs=None):
    """``WordsSaid`` of the messages."""
    found = passage.read(text, most=int(LIMITS["text_characters"]))
    refusal, form = "", None
    chosen = []
    try:
        chosen = found.chosen() if pairs is None else passage.checked(pairs)
        counts = found.classes(chosen)
        forms = [{"text": text, "pairs": chosen}, {"bars": bars(counts)}]
        form = min(forms, key=lambda one: len(as_json(one)))
    except InputError as error:
        refusal = str(error)
    shown = [
        {"query": query, "next": following, "count": n, "chosen": (query, following) in chosen}
        for at, ((query, following), n) in enumerate(zip(found.pairs, found.counts.tolist(), strict=True))
        if at < SHOWN or (query, following) in chosen
    ]
    return {"words": found.n_words, "different": len(found.vocabulary) - 2, "sentences": found.n_sentences,
            "pairs": shown, "classes": form, "refusal": refusal}  # fmt: skip


def bars(counts):
    """The counts as weights: the same classes as from the text, to the last bit."""
    rows = []
    for n in range(len(counts.query)):
        own = counts.contexts[[n]].tocoo()
        rows.append({"query": int(counts.query[n]), "next_token": int(counts.next_token[n]),
                     "p_class": int(counts.pair_counts[n]), "tokens": own.col.tolist(),
                     "weights": own.data.tolist()})  # fmt: skip
    used = sorted({token for row in rows for token in (*row["tokens"], row["query"], row["next_token"])})
    return {"vocab_size": len(counts.words), "words": {str(i): counts.words[i] for i in used}, "classes": rows}


def summary(classes):
    """``Classes`` of the protocol."""
    rows = []
    for n in range(classes.n_classes):
        tokens, p = classes.support(n)
        distinct, local = (np.isin(tokens, classes.distinct(n, local=near)) for near in (False, True))
        rows.append({
            "query": int(classes.query[n]), "next_token": int(classes.next_token[n]),
            "p_class": float(classes.p_class[n]), "tokens": tokens.tolist(), "p": p.tolist(),
            "kinds": _kinds(distinct), "local": _kinds(local),
            "dominant": int(tokens[distinct][np.argmax(p[distinct])]) if distinct.any() else None,
        })  # fmt: skip
    words = getattr(classes, "words", None)
    return {
        "vocab_size": classes.vocab_size, "n_classes": classes.n_classes, "queries": classes.queries.tolist(),
        "common": classes.common.tolist(), "classes": rows,
        "words": None if words is None else {str(i): word for i, word in enumerate(words)},
    }  # fmt: skip


def _kinds(distinct):
    return ["distinct" if d else "common" for d in distinct]
