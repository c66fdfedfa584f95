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
# # What Adam does
#
# The paper analyses SGD: attention moves to distinct words, *frequent ones
# first*. Most people train with Adam. This tutorial measures the order with
# four optimisers, finds that Adam reverses it, and derives why from two
# training steps. It takes less than a minute.
#
# **The measure.** We correlate how far the logit z of each distinct word rises
# with the frequency of the word. Spearman's rank correlation is +1 if frequent
# words rise most and −1 if rare words do. We measure when the loss has fallen
# to a tenth, so that fast and slow optimisers are compared at the same point of
# learning. Each seed gives one number.

# %%
import numpy as np

import scansnap as ss
from scansnap.measure.comparison import interval
from scansnap.measure.ranks import rank_correlation

# 3 queries with 2 next words each; 10 distinct words in each of the 6 classes
classes = ss.SequenceClasses.syn_medium(n_queries=3)
SEEDS = 20


def trained(optimizer, eta_y, eta_z, **more):
    """All seeds at once, to 100 steps."""
    runs = ss.grid(eta_y=eta_y, eta_z=eta_z, seed=range(SEEDS))
    more = {"steps": 100, "record": "linear:51", "device": "cpu"} | more
    return ss.simulate(classes, runs, optimizer=optimizer, **more)


def rises(data):
    """Δz and P(l|n), (seed, class, distinct word), at a tenth of the loss."""
    loss = data.loss.mean("run").values
    assert loss.min() <= 0.1 * loss[0], "the loss has not fallen to a tenth"
    tenth = int(np.argmax(loss <= 0.1 * loss[0]))
    fates = ss.measure.fates(data.isel(step=slice(tenth + 1)), classes)
    fates = fates.isel(pair=fates.kind == "distinct")
    z, p = fates.z_change.values, np.tile(fates.p_context, (SEEDS, 1))
    return (values.reshape(SEEDS, classes.n_classes, -1) for values in (z, p))


def order(data):
    """One rank correlation for each seed, the mean over the classes."""
    z, p = (values.reshape(-1, values.shape[-1]) for values in rises(data))
    return rank_correlation(z, p).reshape(SEEDS, -1).mean(1)


# %% [markdown]
# Adam's learning rate sets the size of a step; SGD's multiplies the gradient.
# So the rates below differ. With each of them the loss falls to a tenth within
# 100 steps.

# %%
RATES = {"sgd": 1.0, "muon": 0.1, "adam": 0.03, "sign": 0.03}
data = {name: trained(name, eta, eta) for name, eta in RATES.items()}
orders = {name: order(one) for name, one in data.items()}
for name, values in orders.items():
    print(
        f"{name:5s} scan order {interval(values)} (95% interval, {SEEDS} seeds)"
    )

# %% [markdown]
# **Result.** SGD and Muon raise frequent words most, as the paper says. Adam
# and sign descent raise *rare* words most, in every seed.

# %%
for name in ("sgd", "muon"):
    assert orders[name].min() > 0.9
for name in ("adam", "sign"):
    assert orders[name].max() < -0.9

# %%
from scansnap.plots.style import SERIES, styled

COLOUR = dict(zip(RATES, SERIES, strict=False))
with styled(7.0, 2.9) as figure:
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    for name in ("sgd", "adam"):
        z, p = (values.mean((0, 1)) for values in rises(data[name]))
        left.plot(
            p,
            z / abs(z).max(),
            "o-",
            color=COLOUR[name],
            markersize=3,
            label=name,
        )
    left.axhline(0, color="0.7", linewidth=0.6)
    left.set(title="Who rises", xlabel="frequency of the word, P(l|n)")
    left.set(ylabel="Δz over the largest, mean")
    left.legend()
    for i, (name, values) in enumerate(orders.items()):
        height = i + np.linspace(-0.2, 0.2, SEEDS)
        right.plot(values, height, ".", color=COLOUR[name], markersize=4)
    right.axvline(0, color="0.7", linewidth=0.6)
    right.set(title=f"Scan order, {SEEDS} seeds", xlim=(-1.1, 1.1))
    right.set(xlabel="rank correlation of Δz and P(l|n)")
    right.set_yticks(range(len(orders)), list(orders))
    right.invert_yaxis()
figure

# %% [markdown]
# ## Why
#
# Two steps from Y = Z = 0 show the reason without noise: with
# `context=math.inf` and `batch_size=None` the gradient is the exact
# expectation.
#
# **The first step changes only Y**, because Z has no gradient while Y = 0. The
# gradient of a distinct word's row is p_n f_l (e_n − 1/M). SGD uses it
# unchanged, so a word that is twice as frequent gets twice the votes. Adam and
# sign descent use its *sign*, so all distinct words get equal votes.

# %%
import math

own = classes.distinct(0)  # of class 0, from rare to frequent
EXACT = {
    "context": math.inf,
    "batch_size": None,
    "dtype": "float64",
    "device": "cpu",
}


def after(steps, optimizer, eta_y, eta_z):
    """Votes and logits of these words after some steps on exact gradients."""
    how = {"optimizer": optimizer, "eta_y": eta_y, "eta_z": eta_z} | EXACT
    data = ss.simulate(
        classes, steps=steps, record=[steps], variables=["y", "z"], **how
    )
    last = data.isel(run=0, step=0).sel(token=own)
    return last.y.values, last.z.sel(query=classes.query[0]).values


f = classes.p_context[0] / np.linalg.norm(classes.p_context[0])
loud = {}
for name in ("sgd", "adam", "sign"):
    votes, _ = after(1, name, RATES[name], RATES[name])
    loud[name] = abs(votes).max(axis=1)
for name, votes in loud.items():
    ratio = votes[-1] / votes[0]
    print(f"{name:5s} loudest votes over the quietest: {ratio:.2f}")
assert np.allclose(loud["sgd"] / loud["sgd"][0], f[own] / f[own][0])  # ∝ f
assert np.allclose(loud["adam"], loud["adam"][0], rtol=1e-3)  # all alike
assert np.allclose(loud["sign"], loud["sign"][0])

# %% [markdown]
# **The second step moves attention.** The gradient of z is diag(f)(I − f fᵀ) g,
# where g_l measures how well word l votes. With SGD g_l ∝ f_l, and frequent
# words gain most. With equal votes g_l is the same for all distinct words, and
# the best unit vector f is *equal* on all of them. Words below this share f*
# rise, and words above it fall:
#
# ```text
# Δz_l = η_Z sign(f* − f_l)      with sign descent
# ```

# %%
_, z = after(2, "sign", RATES["sign"], RATES["sign"])
rising = z > 0
arrows = "".join("↑" if up else "↓" for up in rising)
print(
    "second step of sign descent, from the rarest word to the most frequent:",
    arrows,
)
assert np.allclose(abs(z), RATES["sign"])  # every word moves by exactly ±η_Z
assert 0 < rising.sum() < len(rising)
# and there is one border: rarer words rise, more frequent ones fall
assert f[own][rising].max() < f[own][~rising].min()

# %% [markdown]
# ## Is it Adam on Y, or Adam on Z?
#
# Each table can have its own optimiser, so we can test this.

# %%
mixed = {
    "Adam on both": orders["adam"],
    "Adam on Y, SGD on Z": order(trained({"y": "adam", "z": "sgd"}, 0.03, 1.0)),
    "SGD on Y, Adam on Z": order(trained({"y": "sgd", "z": "adam"}, 1.0, 0.03)),
    "SGD on both": orders["sgd"],
}
for name, values in mixed.items():
    print(f"{name:20s} scan order {interval(values)}")
# Adam on Z alone changes nothing; Adam on Y alone leaves no order at all
assert mixed["SGD on Y, Adam on Z"].min() > 0.9
assert abs(mixed["Adam on Y, SGD on Z"]).max() < 0.3

# %% [markdown]
# Adam on Z alone keeps the order: frequent words still have larger votes. Adam
# on Y alone removes the order, and both together reverse it. The formula
# explains this. With equal votes the gradient of z_l is proportional to f_l (f*
# − f_l), a parabola: small for the rarest words and small again near f*. SGD
# follows the parabola, which has no order. Adam makes all positive values equal
# and leaves frequent words last.

# %%
_, z = after(2, {"y": "sign", "z": "sgd"}, 0.03, 1.0)
line = np.polyfit(f[own], z / f[own], 1)  # z/f is a straight line in f …
f_star = -line[1] / line[0]  # … that crosses 0 at f*
assert np.allclose(np.polyval(line, f[own]), z / f[own], rtol=1e-6)
assert all(rising == (f[own] < f_star))  # the f* of sign descent

with styled(6.4, 2.6) as figure:
    axes = figure.subplots()
    grid = np.linspace(0, 1.15 * f_star, 100)
    curve = grid * np.polyval(line, grid)
    axes.plot(grid, curve, color="0.6", label="f_l (f* − f_l), up to a factor")
    axes.plot(
        f[own], z, "o", color=COLOUR["sgd"], label="Δz by SGD, equal votes"
    )
    axes.axhline(0, color="0.7", linewidth=0.6)
    axes.axvline(
        f_star, color=COLOUR["adam"], ls=":", label=f"f* = {f_star:.2f}"
    )
    axes.set(
        xlabel="f_l of a distinct word, from rare to frequent", ylabel="Δz"
    )
    axes.legend()
figure

# %% [markdown]
# **At the end of training**, equal votes favour equal attention, and sign
# descent stops there. Adam goes further: after 1000 steps its rarest words have
# *more* attention than the frequent ones. We have no derivation of this.

# %%
for name in ("sgd", "sign", "adam"):
    _, z = after(1000, name, RATES[name], RATES[name])
    slope = np.polyfit(np.log(classes.p_context[0, own]), z, 1)[0]
    print(f"{name:5s} z = {slope:+.2f} ln P(l|n) + const (−1: all alike)")
    assert {
        "sgd": slope > 0,
        "sign": abs(slope + 1) < 0.1,
        "adam": slope < -1.1,
    }[name]

# %% [markdown]
# ## Try
#
# - A decoder ten times as fast as attention: `trained("adam", 0.03, 0.003)`.
#   The order is still reversed, but less. Why? (How far has attention moved
#   when the loss is at a tenth?)
# - No norm: `trained("sign", 0.03, 0.03, norm="none")`. Without f fᵀ nothing
#   favours equal shares. What happens to the order?
# - Adam with a large ε equals SGD: `ss.Optimizer("adam", eps=1.0)`. At which ε
#   does the order reverse?
#
# ## Read on
#
# - [Other papers](../survey.md#adam-reverses-the-scan-order): the derivation in
#   full, with f*.
# - [The ablation study](../dial.md): SGD and AdamW between this model and a
#   transformer.
# - [Extension points](../extending.md): write an optimiser in a few lines, and
#   test whether it keeps the order.
