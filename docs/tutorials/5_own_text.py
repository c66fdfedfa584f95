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
# **The question.** Here is a text. A model will be trained on it, and its
# attention will turn to some words. Can one say which, before attention is
# trained?
#
# **The text.** Any text does: a `.txt` file, a folder of them, or a corpus by
# name. The one below is on every machine that has Python, the docstrings of its
# standard library. Change one line to use your own.

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
# If you have WikiText-2, `TEXT` is its folder (with `train.txt`, `valid.txt`
# and `test.txt`, or `wiki.train.tokens` and so on, as its authors name them).
# With `pip install 'scansnap[text]'` and a network, `TEXT = "wikitext-2"`
# fetches it.
#
# The words asked about are the 20 most frequent ones that are made of letters.
# Scores count, of all words, those that stand at least 20 times before a query:
# what is seen less is told by chance.

# %%
LETTERS = np.array([word.isalpha() and len(word) > 1 for word in words])
queries = np.flatnonzero(LETTERS)[:20]
print(*(words[query] for query in queries))

# %% [markdown]
# ## First idea: count classes
#
# The theory speaks of sequence classes: a query, a next word, and how often
# each word stands before the two. All of it can be counted. Every query gets
# its two most frequent next words, and the exact flow of these classes says who
# wins.

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
# This is the first thing to learn about text: **hard distinctness hardly
# exists**. Given enough text every word stands before everything now and then.
# Words are more or less telling, and a theorem about words that tell for
# certain has little to hold on to. The flow can be run all the same.

# %%
size = {"n_classes": classes.n_classes, "vocab_size": classes.vocab_size}
snap = float(ss.theory.t_snap(eta_y=1.0, **size))
flow = ss.flow(classes, eta_y=1.0, eta_z=0.1, t=[snap], variables=["z"])
by_classes = flow.z.isel(t=0).sel(query=queries).values  # (query, word)

# %% [markdown]
# ## Second idea: let attention listen
#
# Train the decoder Y on the text with attention kept *uniform*, and let Z only
# listen: add up the gradients it would have followed, without following them.
# The model never attends to anything. Its Z is the first order of what training
# would do, with all next words in it and with the decoder's saturation.
#
# The prediction is made now, before any attention has been trained.

# %%
STEPS, RATES = 300, {"eta_y": 30.0, "eta_z": 3.0}
PLAN = {"steps": STEPS, "shuffle": 0}
settings = YZSettings(len(words), **RATES)
told = ss.text.predict(settings, corpus.train, queries=queries.tolist(), **PLAN)
listening = told.z[STEPS]  # (query, word)

counted = (told.counts >= 20) & LETTERS


def top(table, i, n=8):
    """The n words with the largest entries for query number i."""
    found = np.where(counted[i], table[i], -np.inf)
    return [words[token] for token in np.argsort(-found, kind="stable")[:n]]


for i in (0, 5, 10, 15):
    print(f"{words[queries[i]]:8s} will attend to:", *top(listening, i))

# %% [markdown]
# ## Train, and check
#
# Now the model that attends, on the same windows of text in the same order.

# %%
model = YZTransformer(settings)
done = train(model, corpus.train, **PLAN)
trained = model.z[0].matrix()[queries].numpy()
print(f"loss {done.losses[0]:.2f} → {done.losses[-50:].mean():.2f}")
for i in (0, 5, 10, 15):
    print(f"{words[queries[i]]:8s} does attend to:  ", *top(trained, i))

# %% [markdown]
# That looks good, but a few lists prove nothing, and the most frequent words
# would be in many of them anyway. So the prediction is scored over all queries,
# beside a **baseline** that knows only how often a word stands before the
# query, and beside chance: how many of the ten words most attended to are
# named, and the rank correlation over all words.

# %%
CANDIDATES = {
    "listening": listening,
    "flow of counted classes": by_classes,
    "baseline: frequency": told.counts.astype(float),
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
    said = f"{ten[name]:4.1f} of 10, rank correlation {ranks[name]:+.2f}"
    print(f"{name:24s} {said}")
print(f"{'chance':24s} {chance:4.1f} of 10")
assert ten["listening"] > ten["baseline: frequency"] + 2
assert ranks["listening"] > 0.7 > ranks["flow of counted classes"]
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
    labels = ["listening", "flow of\nclasses", "baseline:\nfrequency"]
    left.set_yticks(range(len(scores)), labels)
    left.set(
        title="Named of the ten", xlabel="words (dots: queries)", xlim=(0, 10)
    )
    left.invert_yaxis()
    x, y = listening[0], trained[0]
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
# **What one sees.** The model that never attended names most of the words. How
# often a word stands before the query is a much weaker guess, and the flow of
# counted classes does not even reach that: two next words for each query are
# too few for a language.
#
# **Why it works.** Attention enters the gradient only through what it has
# become, and while η_Z ≪ η_Y it is still nearly uniform. To first order all
# that moves it is the drive of a decoder that sees everything alike.
#
# ## When it stops
#
# Then a faster attention must be harder to predict. What listens is
# proportional to η_Z, so there is nothing to predict anew.

# %%
lost = []
for eta_z in (3.0, 30.0, 300.0):
    faster = YZTransformer(
        YZSettings(len(words), eta_y=RATES["eta_y"], eta_z=eta_z)
    )
    train(faster, corpus.train, **PLAN)
    now = faster.z[0].matrix()[queries].numpy()
    named, agrees = (float(np.mean(values)) for values in score(listening, now))
    expected = eta_z / RATES["eta_z"] * listening
    size = float(now[counted].std() / expected[counted].std())
    print(
        f"η_Y/η_Z = {RATES['eta_y'] / eta_z:4.1f}: {named:.1f} of 10,",
        f"rank correlation {agrees:+.2f}, size {size:.2f} of the predicted one",
    )
    lost.append((1 - agrees, 1 - size))
assert lost[0][0] < lost[1][0] < lost[2][0]  # the order
assert all(size > ranks for ranks, size in lost[1:])  # the size, sooner

# %% [markdown]
# The order is lost slowly, the size sooner: the decoder remembers earlier
# attention and holds it back.
#
# ## Try
#
# - Your own text in `TEXT`. How many words does it take until listening beats
#   the baseline?
# - A query of your own: `queries = [corpus.vocabulary.id("file")]`.
# - More steps: `STEPS = 3000`. Listening at every step on the way is one run:
#   `snapshots=[10, 100, 1000]` among its options, and `told.z` has them all.
# - On the command line: `scansnap text predict --data my_text.txt --query
#   river`, then `scansnap text train` and `scansnap text explain`.
#
# ## Read on
#
# - [Text](../text.md): the same on WikiText-2 with its whole vocabulary, how
#   the score falls with time, and the ordinary transformer.
# - [What holds](../theory.md): the drive, and the memory that it leaves out.
# - [Which theorem holds for my data](2_which_theorem.py): for classes that are
#   distinct.
