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
# # Scan and snap in ten lines
#
# This tutorial trains a 1-layer transformer on two kinds of sequences and shows
# how its attention changes. You will see attention leave uninformative words
# (*scan*) and then almost stop changing (*snap*), check both with numbers, and
# see a control in which nothing is scanned. It takes a few seconds.
#
# **The data.** `syn_small` has two *sequence classes*. A class draws the words
# of a context from its own distribution P(l|n), followed by a query (the last
# word) and the next word n, which the model predicts. Ten words are *common*:
# they occur in both classes and do not tell which word comes next. Ten words
# are *distinct* to each class, from rare to frequent.

# %%
import scansnap as ss

classes = ss.SequenceClasses.syn_small()
data = ss.simulate(
    classes, eta_y=1.0, eta_z=1.0, momentum=0.9, steps=100, seed=0, record="all"
)

attention = data.attention.isel(run=0)  # step, seq_class, token
on_common = attention.sel(token=classes.common).sum("token")
for step in (0, 10, 25, 50, 100):
    share = float(on_common.sel(step=step).mean())
    print(f"step {step:3d}: {share:.0%} of the attention is on common words")

# %% [markdown]
# `simulate` returns an `xarray.Dataset` with named dimensions: run, step,
# seq_class, token, query. `ss.plot` draws it.

# %%
ss.plot(data)

# %% [markdown]
# **What the figure shows.** In the upper panels each row is a step and each
# column a word of the class: common words first (orange bar), then distinct
# words (blue bar) from rare to frequent.
#
# 1. *Scan.* Common words lose attention and distinct words gain it.
# 2. Frequent distinct words gain most. The most frequent one ends with the most
#    attention.
# 3. *Snap.* After some steps attention hardly changes, although the loss still
#    falls.
#
# The next cell checks each of the three with a number and an `assert`.

# %%
start, end = attention.isel(step=0), attention.isel(step=-1)

assert (
    len(classes.common)
    == len(classes.distinct(0))
    == len(classes.distinct(1))
    == 10
)

# 1. common words lose at least 30% of their attention in every class
assert (on_common.isel(step=-1) < 0.7 * on_common.isel(step=0)).all()

# 2. the winner is the most frequent distinct word
for n in range(classes.n_classes):
    own = classes.distinct(n)
    winner = own[end.values[n, own].argmax()]
    a, b = float(start[n, winner]), float(end[n, winner])
    print(f"class {n}: word {winner} wins, its attention {a:.0%} → {b:.0%}")
    assert winner == own[classes.p_context[n, own].argmax()]

# 3. how far attention moves (total variation) in each half of the training
middle = attention.sel(step=50)
first = float(abs(middle - start).sum("token").mean() / 2)
last = float(abs(end - middle).sum("token").mean() / 2)
snap = ss.measure.snap_time(data)
print(f"attention moves by {first:.0%} in the first half, then by {last:.1%}")
print(f"it snapped at step {float(snap.t_snap[0]):.0f}")
assert bool(snap.has_snapped[0])
assert last < first / 10
assert (
    data.loss.isel(step=-1) < data.loss.sel(step=50)
).all()  # the loss still falls

# %% [markdown]
# **Why.** The model has two tables. Y[l, j] is the vote of context word l for
# output j. Z[m, l] is the attention logit of query m for word l. With attention
# c by word, f = c/‖c‖ and the prediction α, one step of gradient ascent is
#
# ```text
# ΔY   = η_Y f (e_n − α)ᵀ
# Δz_m = η_Z diag(f) (I − f fᵀ) Y (e_n − α)
# ```
#
# The first line trains the votes of the words that receive attention. The
# second gives more attention to words whose votes predict the next word. A
# distinct word always votes for the right output, so its votes add up. A common
# word votes for both, so its votes cancel. Therefore attention moves from
# common to distinct words, and faster to frequent ones, which are trained more
# often. Both lines contain the error e_n − α. Once Y predicts well, the error
# is small, and attention snaps.

# %% [markdown]
# **A control.** If this explanation is right, words that carry no information
# must not be scanned. The control uses the same words, but both classes draw
# from the *same* distribution, so that every word is common. Both classes share
# one query, because a query of its own would reveal the class. Training uses
# the exact expectation over all sequences (`context=math.inf`,
# `batch_size=None`), so that sampling noise cannot look like an effect.

# %%
import math

p, query = classes.p_context, classes.query[[0, 0]]
informative = ss.SequenceClasses(
    p_context=p, query=query, next_token=classes.next_token
)
uninformative = ss.SequenceClasses(
    p_context=p[[0, 0]], query=query, next_token=classes.next_token
)


def distance(words, **options):
    """Total variation distance of attention from its start, by step."""
    path = ss.simulate(
        words,
        eta_y=1.0,
        eta_z=1.0,
        momentum=0.9,
        steps=100,
        record="all",
        **options,
    ).attention.isel(run=0)
    return abs(path - path.isel(step=0)).sum("token").mean("seq_class") / 2


exact = {"context": math.inf, "batch_size": None}
far, near = distance(informative, **exact), distance(uninformative, **exact)
print(f"attention moves by {float(far[-1]):.0%} if some words are informative")
print(f"and by {float(near[-1]):.0%} if no word is")
assert far[-1] > 0.1
assert near.max() < 1e-4

# %%
from scansnap.plots.style import COMMON, DISTINCT, styled

with styled(6.4, 2.6) as figure:
    axes = figure.subplots()
    axes.plot(
        data.step, far, color=DISTINCT, label="some words are informative"
    )
    axes.plot(data.step, near, color=COMMON, label="control: no word is")
    axes.axvline(
        float(snap.t_snap[0]), color="0.6", linestyle=":", label="snap"
    )
    axes.set(xlabel="step", ylabel="distance from the start", ylim=(0, None))
    axes.legend()
figure

# %% [markdown]
# ## Try
#
# - A faster decoder: `eta_y=10.0`. Does attention become sparser or denser?
#   (`data.entropy` has the answer, and Figure 6 of the paper is about it.)
# - Other seeds at once: `ss.simulate(classes, ss.grid(eta_y=1.0, eta_z=1.0,
#   seed=range(20)), …)`. Which of the three statements hold in every seed?
# - The control with noise: `distance(uninformative, seed=0)` trains on sampled
#   sequences. How far does noise alone move attention?
# - Words instead of numbers: `ss.SequenceClasses.bundled_words()`; its `words`
#   name the tokens.
#
# ## Read on
#
# - [Which theorem holds for my data](2_which_theorem.py): the same with your
#   own data, and what the theorems guarantee.
# - [Two time scales](../time_scales.md): attention may stop in t and still move
#   in ln t; the definition of a snap.
# - [What holds](../theory.md): closed forms for these dynamics.
# - [Settings](../settings.md): all options of `simulate`.
