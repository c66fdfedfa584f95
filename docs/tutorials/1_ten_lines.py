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
# **The question.** A transformer with one layer reads some words and predicts
# the next one. Most words of the context are of no use: they stand before every
# next word. A few tell which one it will be. Nobody says which is which. How
# does attention find them, and does it ever stop looking?
#
# **The data.** `syn_small` has two *sequence classes*. A sequence of a class is
# a context of words drawn from the class's own distribution P(l|n), then a
# query (the last word), then the next word n, which is to be predicted. Ten
# words are *common*: they stand in both contexts. Ten are *distinct* to each
# class, from rare to frequent.
#
# Here is the whole experiment.

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
# **What one sees.** Above, one row is one step and one column is one word of
# the class: common words first (orange bar), then the distinct ones (blue bar)
# from rare to frequent. Three things happen.
#
# 1. *Scan.* Common words lose attention, and distinct ones gain it.
# 2. Not all distinct words gain alike: the frequent ones win. The most frequent
#    of all has the most attention in the end.
# 3. *Snap.* After some steps hardly anything moves any more, although the loss
#    goes on falling.
#
# A picture can be read as one likes, so here is each of the three as a number,
# and as an `assert` that would fail.

# %%
start, end = attention.isel(step=0), attention.isel(step=-1)

assert (
    len(classes.common)
    == len(classes.distinct(0))
    == len(classes.distinct(1))
    == 10
)

# 1. every class looks much less at common words, and so more at its own
assert (on_common.isel(step=-1) < 0.7 * on_common.isel(step=0)).all()

# 2. the winner is the most frequent distinct word
for n in range(classes.n_classes):
    own = classes.distinct(n)
    winner = own[end.values[n, own].argmax()]
    a, b = float(start[n, winner]), float(end[n, winner])
    print(f"class {n}: word {winner} wins, its attention {a:.0%} → {b:.0%}")
    assert winner == own[classes.p_context[n, own].argmax()]

# 3. how far attention moves (total variation) in either half of the training
middle = attention.sel(step=50)
first = float(abs(middle - start).sum("token").mean() / 2)
last = float(abs(end - middle).sum("token").mean() / 2)
snap = ss.measure.snap_time(data)
print(f"attention moves by {first:.0%} in the first half, then by {last:.1%}")
print(f"it snapped at step {float(snap.t_snap[0]):.0f}")
assert bool(snap.found[0])
assert last < first / 10
assert (
    data.loss.isel(step=-1) < data.loss.sel(step=50)
).all()  # the loss still falls

# %% [markdown]
# **Why.** The model has two tables. Y[l, j] is the vote of a context word l for
# an output j. Z[m, l] is how much the query m wants to look at l. With c the
# attention by word, f = c/‖c‖ and α the prediction, one step of gradient ascent
# is
#
# ```text
# ΔY   = η_Y f (e_n − α)ᵀ
# Δz_m = η_Z diag(f) (I − f fᵀ) Y (e_n − α)
# ```
#
# The first line: what is attended to learns to vote. The second: what votes
# well is attended to more. A distinct word is always right: its votes add up. A
# common word has voted for both next words, and its votes cancel. So attention
# goes from the second kind to the first. A frequent word is voted with more
# often, and so it gains faster. And the snap: both lines have the factor e_n −
# α, the error that is left. Once Y predicts well there is hardly anything that
# could move attention.

# %% [markdown]
# **A control.** If this is right, words that tell nothing must not be scanned.
# Take the same words, but let both classes draw from the *same* distribution:
# every word is common now. Both classes get one query, since a query of its own
# would tell a class too. Training is on the exact expectation over all
# sequences (`context=math.inf`, `batch_size=None`), so that no noise of
# sampling is taken for an effect.

# %%
import math

p, query = classes.p_context, classes.query[[0, 0]]
telling = ss.SequenceClasses(
    p_context=p, query=query, next_token=classes.next_token
)
nothing = ss.SequenceClasses(
    p_context=p[[0, 0]], query=query, next_token=classes.next_token
)


def gone(words, **how):
    """How far attention is from its start (total variation), by step."""
    path = ss.simulate(
        words,
        eta_y=1.0,
        eta_z=1.0,
        momentum=0.9,
        steps=100,
        record="all",
        **how,
    ).attention.isel(run=0)
    return abs(path - path.isel(step=0)).sum("token").mean("seq_class") / 2


exact = {"context": math.inf, "batch_size": None}
far, near = gone(telling, **exact), gone(nothing, **exact)
print(f"attention moves by {float(far[-1]):.0%} where some words tell the next")
print(f"and by {float(near[-1]):.0%} where no word does")
assert far[-1] > 0.1
assert near.max() < 1e-4

# %%
from scansnap.plots.style import COMMON, DISTINCT, styled

with styled(6.4, 2.6) as figure:
    axes = figure.subplots()
    axes.plot(
        data.step, far, color=DISTINCT, label="some words tell the next one"
    )
    axes.plot(data.step, near, color=COMMON, label="control: no word does")
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
# - The control with noise: `gone(nothing, seed=0)` trains on sampled sequences.
#   How far does attention wander by noise alone?
# - Words in place of numbers: `ss.SequenceClasses.bundled_words()`, whose
#   `words` say what a token reads.
#
# ## Read on
#
# - [Which theorem holds for my data](2_which_theorem.py): the same with data of
#   your own, and what can be proved about it.
# - [Two time scales](../time_scales.md): attention may stop in t and
#   still move in ln t; the definition of a snap.
# - [What holds](../theory.md): closed forms for what was seen here.
# - [Settings](../settings.md): everything that `simulate` takes.
