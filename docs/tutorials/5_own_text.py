# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Predict attention on your own text
#
# Train a model on a text, and its attention moves to some words. This tutorial
# predicts which ones, before attention is trained, and compares the prediction
# with training and with two baselines. It takes a few minutes on a CPU.
#
# **The text.** You can use any text: a `.txt` file, a folder of them, or a
# corpus by name. The cell below uses the docstrings of Python's standard
# library, which every machine has. Change one line to use your own.

# %%
import numpy as np

import scansnap as ss
from scansnap.corpus import load_corpus
from scansnap.measure.ranks import overlap, rank_correlation
from scansnap.text.training import train
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

TEXT = "stdlib"  # or "my_text.txt", a folder of texts, "wikitext-2"

corpus = load_corpus(TEXT, max_words=500)
words = corpus.vocabulary.words
print(f"{len(corpus.train):,} words to train on, {len(words)} different ones")
print(f"all others are {words[corpus.vocabulary.unk]}")

# %% [markdown]
# If you have WikiText-2, set `TEXT` to its folder (with `train.txt`,
# `valid.txt` and `test.txt`, or `wiki.train.tokens` and so on). With `pip
# install 'scansnap[text]'` and a network, `TEXT = "wikitext-2"` downloads it.
#
# The queries are the 20 most frequent words that consist of letters. Scores
# count only words that precede a query at least 20 times, because rarer ones
# are predicted by chance.

# %%
LETTERS = np.array([word.isalpha() and len(word) > 1 for word in words])
queries = np.flatnonzero(LETTERS)[:20]
print(*(words[query] for query in queries))

# %% [markdown]
# ## First idea: count classes
#
# The theory describes sequence classes: a query, a next word, and the
# distribution of words before them. We can count all of these in a text. Every
# query gets its two most frequent next words, and the exact flow of these
# classes predicts which words gain attention.

# %%
asked = [words[query] for query in queries]
classes = ss.SequenceClasses.from_corpus(
    corpus, queries=asked, next_per_query=2
)
for n in range(4):
    pair = f"{words[classes.query[n]]} → {words[classes.next_token[n]]}"
    print(f"class {n}: … {pair}, {classes.support_sizes[n]} words before it")
distinct = sum(len(classes.distinct(n)) for n in range(classes.n_classes))
print(f"words before only one of the {classes.n_classes} classes: {distinct}")
assert distinct < 0.01 * classes.support_sizes.sum()

# %% [markdown]
# **Hard distinctness hardly exists in text.** In enough text every word
# precedes everything now and then. Words are more or less informative, and
# theorems about perfectly distinct words hardly apply. We can integrate the
# flow anyway.

# %%
size = {"n_classes": classes.n_classes, "vocab_size": classes.vocab_size}
snap = float(ss.theory.t_snap(eta_y=1.0, **size))
flow = ss.flow(classes, eta_y=1.0, eta_z=0.1, t=[snap], variables=["z"])
by_classes = flow.z.isel(t=0).sel(query=queries).values  # (query, word)

# %% [markdown]
# ## Second idea: predict with uniform attention
#
# Train the decoder Y on the text while attention stays *uniform*, and
# accumulate the gradients of Z without applying them. This model never changes
# its attention. Its accumulated Z is the first order of what training would do,
# with all next words and with the saturation of the decoder.
#
# The prediction is made now, before any attention is trained.

# %%
STEPS, RATES = 300, {"eta_y": 30.0, "eta_z": 3.0}
PLAN = {"steps": STEPS, "shuffle": 0}
settings = YZSettings(len(words), **RATES)
prediction = ss.text.predict(
    settings, corpus.train, queries=queries.tolist(), **PLAN
)
predicted = prediction.z[STEPS]  # (query, word)

counted = (prediction.counts >= 20) & LETTERS


def top(table, i, n=8):
    """The n words with the largest entries for query number i."""
    values = np.where(counted[i], table[i], -np.inf)
    return [words[token] for token in np.argsort(-values, kind="stable")[:n]]


for i in (0, 5, 10, 15):
    print(f"{words[queries[i]]:8s} will attend to:", *top(predicted, i))

# %% [markdown]
# ## Train, and check
#
# Now we train attention as well, on the same windows of text in the same order.

# %%
model = YZTransformer(settings)
training = train(model, corpus.train, **PLAN)
trained = model.z[0].matrix()[queries].numpy()
print(f"loss {training.losses[0]:.2f} → {training.losses[-50:].mean():.2f}")
for i in (0, 5, 10, 15):
    print(f"{words[queries[i]]:8s} does attend to:  ", *top(trained, i))

# %% [markdown]
# A few lists prove nothing: the most frequent words would be in many of them
# anyway. So we score the prediction over all queries, beside a **baseline**
# that knows only how often a word precedes the query, and beside chance. The
# scores are how many of the ten most attended words are named, and the rank
# correlation over all words.

# %%
CANDIDATES = {
    "predicted": predicted,
    "flow of counted classes": by_classes,
    "baseline: frequency": prediction.counts.astype(float),
}


def score(table, truth):
    """Of ten, for each query, and the rank correlation."""
    a, b = (np.where(counted, values, np.nan) for values in (table, truth))
    return 10 * overlap(a, b, 10)[0], rank_correlation(a, b)


scores = {name: score(table, trained) for name, table in CANDIDATES.items()}
chance = 100 / counted.sum(1).mean()
ten = {name: pair[0].mean() for name, pair in scores.items()}
ranks = {name: pair[1].mean() for name, pair in scores.items()}
for name in scores:
    scores_text = f"{ten[name]:4.1f} of 10, rank correlation {ranks[name]:+.2f}"
    print(f"{name:24s} {scores_text}")
print(f"{'chance':24s} {chance:4.1f} of 10")
assert ten["predicted"] > ten["baseline: frequency"] + 2
assert ranks["predicted"] > 0.7 > ranks["flow of counted classes"]
assert ten["flow of counted classes"] < ten["baseline: frequency"]

# %%
from scansnap.plots.style import SERIES, styled

with styled(7.0, 3.0) as figure:
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    for k, (values, _) in enumerate(scores.values()):
        left.barh(k, values.mean(), color=SERIES[k], alpha=0.8)
        height = k + np.linspace(-0.25, 0.25, len(values))
        left.plot(values, height, ".", color="black", markersize=3)
    left.axvline(chance, color="0.5", linestyle=":")
    left.annotate(
        "chance", (chance, -0.45), color="0.35", fontsize=8, ha="left"
    )
    labels = ["predicted", "flow of\nclasses", "baseline:\nfrequency"]
    left.set_yticks(range(len(scores)), labels)
    left.set(
        title="Named of the ten", xlabel="words (dots: queries)", xlim=(0, 10)
    )
    left.invert_yaxis()
    x, y = predicted[0], trained[0]
    right.plot(x[counted[0]], y[counted[0]], ".", color=SERIES[0], markersize=4)
    beside = {"textcoords": "offset points", "fontsize": 8, "ha": "right"}
    for word in top(trained, 0, 5):
        token = corpus.vocabulary.id(word)
        right.annotate(word, (x[token], y[token]), (-5, 0), **beside)
    right.axline((0, 0), slope=1, color="0.6", linewidth=0.8)
    right.set(title=f"All words, query “{words[queries[0]]}”")
    right.set(xlabel="z, predicted", ylabel="z, trained")
figure

# %% [markdown]
# **Result.** The model with uniform attention names most of the words. The
# frequency of a word before the query is a much weaker predictor. The flow of
# counted classes is weaker still, because two next words per query are too few
# for a language.
#
# **Why it works.** Attention enters the gradient only through its own value,
# and while η_Z ≪ η_Y it is nearly uniform. To first order the force on
# attention comes from a decoder that attends to everything equally.
#
# ## When it fails
#
# A faster attention must be harder to predict. The accumulated Z is
# proportional to η_Z, so the prediction needs no second run.

# %%
lost = []
for eta_z in (3.0, 30.0, 300.0):
    faster = YZTransformer(
        YZSettings(len(words), eta_y=RATES["eta_y"], eta_z=eta_z)
    )
    train(faster, corpus.train, **PLAN)
    now = faster.z[0].matrix()[queries].numpy()
    named, agrees = (float(np.mean(values)) for values in score(predicted, now))
    expected = eta_z / RATES["eta_z"] * predicted
    size = float(now[counted].std() / expected[counted].std())
    print(
        f"η_Y/η_Z = {RATES['eta_y'] / eta_z:4.1f}: {named:.1f} of 10,",
        f"rank correlation {agrees:+.2f}, size {size:.2f} of the predicted one",
    )
    lost.append((1 - agrees, 1 - size))
assert lost[0][0] < lost[1][0] < lost[2][0]  # the order
assert all(size > ranks for ranks, size in lost[1:])  # the size, sooner

# %% [markdown]
# The order is lost slowly, the size sooner: the decoder was trained with
# earlier attention and pulls attention back.
#
# ## Try
#
# - Your own text in `TEXT`. How many words does it take until the prediction
#   beats the baseline?
# - Your own query: `queries = [corpus.vocabulary.id("file")]`.
# - More steps: `STEPS = 3000`. One run predicts every step on the way:
#   pass `snapshots=[10, 100, 1000]` and read `.z` of the prediction.
# - On the command line: `scansnap text predict --data my_text.txt --query
#   river`, then `scansnap text train` and `scansnap text explain`.
#
# ## Read on
#
# - [Study](../text_study.md): the same on WikiText-2 with its whole
#   vocabulary, over time, and for the transformer.
# - [What holds](../theory.md): the drive, and the memory that this leaves out.
# - [Which theorem holds for my data](2_which_theorem.py): for classes that are
#   distinct.
