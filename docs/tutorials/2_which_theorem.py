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
# # Which theorem holds for my data
#
# The paper's theorems assume a certain kind of data. This tutorial describes
# your own data, asks `ss.verify` which statements hold for it, changes the data
# until all assumptions are met, and shows what holds where a theorem fails. It
# takes less than a minute.
#
# **The data.** A diary of the weather. Some words precede *tomorrow*, and
# *rain* or *sun* follows it. Articles carry no information; clouds and larks
# do. You describe such data by three things: how often each word occurs in the
# contexts of a class, the query, and the next word.

# %%
import numpy as np

import scansnap as ss

DIARY = {
    "rain": {"clouds": 8, "damp": 5, "swallows": 3, "wind": 2},
    "sun": {"clear": 8, "dew": 5, "larks": 3, "warm": 2},
}


def diary(common, unused=0):
    """The diary's classes; ``unused`` words are in the dictionary only."""
    words = [*common, *DIARY["rain"], *DIARY["sun"], "tomorrow", "rain", "sun"]
    words += [f"unused {i}" for i in range(unused)]
    contexts = [common | DIARY["rain"], common | DIARY["sun"]]
    counts = np.array(
        [[context.get(word, 0) for word in words] for context in contexts]
    )
    return ss.SequenceClasses(
        p_context=counts / counts.sum(1, keepdims=True),
        query=[words.index("tomorrow")] * 2,
        next_token=[words.index("rain"), words.index("sun")],
        words=words,
    )


mine = diary(common={"the": 6, "a": 4, "of": 3})
print(mine)
for n, after in enumerate(("rain", "sun")):
    print(
        f"only before {after}:",
        *(mine.words[token] for token in mine.distinct(n)),
    )

# %% [markdown]
# `ss.verify` integrates the exact flow of these classes (sequences of infinite
# length, infinitely small steps) and checks every lemma and theorem on it.

# %%
report = ss.verify(mine, eta_y=0.9, eta_z=0.1)
PAPER = ("lemma-", "theorem-", "corollary-")


def table(report):
    """The paper's statements: verdict, what was measured, margin."""
    papers = [claim for claim in report if claim.name.startswith(PAPER)]
    shown = [claim for claim in papers if claim.margin is not None]
    for claim in shown:
        verdict = f"{claim.status:15s} measured: {claim.observed:6s}"
        print(f"{claim.name:20s} {verdict} margin {claim.margin:8.2f}")
    return shown


shown = table(report)

# %% [markdown]
# **How to read it.** A verdict is one of four words. *Holds* and *fails* mean
# what they say. *Not applicable* means that the data violate an assumption of
# the theorem; the report still shows the measurement, because a statement often
# holds far outside its proof. *Undecided* occurs only with noise, and a flow
# has none. The margin is 1 for exact agreement, 0 at the tolerance and negative
# beyond it.
#
# Most theorems do not apply to this diary. Every claim gives the reason:

# %%
violated = {
    assumption.name: assumption
    for claim in shown
    for assumption in claim.assumptions
    if not assumption.met
}
for name, assumption in violated.items():
    print(
        f"{name}: {assumption.value:.3g}, required {assumption.threshold:.3g}"
    )
outside = [claim for claim in shown if claim.status == "not applicable"]
held = [claim.name for claim in outside if claim.observed == "holds"]
print(
    f"{len(outside)} statements do not apply; {len(held)} of them hold anyway"
)
assert {"large vocabulary", "fast decoder"} <= set(violated)
assert "theorem-2a" in held  # every distinct word rises: the scan needs less

# %% [markdown]
# ## Meeting the assumptions
#
# The violated assumptions show what to change: use a larger vocabulary, a
# decoder that learns much faster than attention, and one common word.

# %%
ideal = diary(common={"the": 4}, unused=2000)
report = ss.verify(ideal, eta_y=0.9, eta_z=0.02)
shown = table(report)
fails = [claim.name for claim in report.failures]
print("\nfail although every assumption is met:", *fails, sep="\n    ")
assert sum(claim.status == "holds" for claim in shown) > len(shown) / 2
assert all(
    assumption.met for claim in shown for assumption in claim.assumptions
)
for name in (
    "theorem-2a",
    "theorem-2b",
    "theorem-3-identity",
    "theorem-4-time",
):
    assert report[name].status == "holds"
for name in ("theorem-1-xi-size", "theorem-3-lower", "theorem-4-growth"):
    assert report[name].status == "fails"

# %% [markdown]
# Now the theorems apply, and most hold: each distinct word gains attention
# (2a), the common one loses it (2b), the relative gain follows Theorem 3, and
# the phase transition comes at the time of Theorem 4. Some statements fail
# although every assumption is met: the size of the force on attention differs
# from that in the proofs, and so does the growth B_n of Theorem 4.
#
# ## What holds instead
#
# A claim that fails names a replacement, tested on the same data: our theory of
# the decoder's *memory* (Y was trained with earlier attention and pulls
# attention back), and its general form, the *linear response*. Neither has a
# fitted parameter.

# %%
for claim in report.failures:
    print(claim.name)
    print("   ", str(claim.alternative).replace("; ", "\n    "))
assert all(
    claim.alternative.claim.status == "holds" for claim in report.failures
)
assert all(
    claim.alternative.error < min(0.05, claim.alternative.paper_error)
    for claim in report.failures
)

# %%
ss.plot(ss.verify(ideal, eta_y=0.9, eta_z=0.02, checks=["theorem-4", "memory"]))

# %% [markdown]
# Blue is the flow, dashed is the theorem, and the green band is the
# replacement.
#
# ## A map for your data
#
# The diary has three common words and a small vocabulary, and you cannot change
# that. You can choose the learning rates. The map checks the same statements
# for η_Y/η_Z from 1 to 300, with one flow per column.

# %%
RATIOS = (1, 3, 10, 30, 100, 300)
NAMES = {
    "theorem-1-span": "gradient is in the span of the f's (1)",
    "theorem-1-gamma": "speed γ(t) (1b)",
    "theorem-2a": "distinct words rise (2a)",
    "theorem-2a-rate": "… at one rate ξ f² (2a)",
    "theorem-3-identity": "relative gain (3)",
    "theorem-3-lower": "lower bound on it (3)",
    "theorem-4-growth": "growth B_n (4)",
    "theorem-4-time": "time of the snap (4)",
    "response": "ours: linear response",
}
M = mine.vocab_size
snap = float(
    ss.theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=M)
)  # t₀ of the paper
CHECKS = ["theorem-1", "theorem-2", "theorem-3", "theorem-4", "response"]
columns = [
    ss.verify(
        mine, eta_y=0.9, eta_z=0.9 / ratio, t_end=10 * snap, checks=CHECKS
    )
    for ratio in RATIOS
]
margin = np.array(
    [[column[name].margin for column in columns] for name in NAMES]
)

# %%
from scansnap.plots.style import styled

with styled(7.0, 3.6) as figure:
    axes = figure.subplots()
    image = axes.imshow(margin, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(margin):
        style = {
            "ha": "center",
            "va": "center",
            "color": "w" if abs(value) > 0.6 else "k",
        }
        axes.text(column, row, f"{value:.1f}".replace("-", "−"), **style)
    axes.set_xticks(range(len(RATIOS)), [f"{ratio}" for ratio in RATIOS])
    axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
    axes.set(
        xlabel="η_Y/η_Z: how much faster the decoder learns than attention"
    )
    axes.spines[:].set_visible(False)
    figure.colorbar(image, label="margin (1 exact, 0 edge)", ticks=(-1, 0, 1))
figure

# %% [markdown]
# Blue holds, red fails. Most rows turn blue as the decoder gets faster: a
# statement holds for this data down to the ratio at which its row turns red.
# The speed γ(t) is the exception. It fails because the two contexts overlap,
# and only fast attention removes the overlap in time.

# %%
for name, row in zip(NAMES, margin, strict=True):
    good = [
        ratio for ratio, value in zip(RATIOS, row, strict=True) if value >= 0
    ]
    print(f"{name:20s} holds at η_Y/η_Z =", *(good or ["none of these"]))
at = dict(zip(NAMES, margin, strict=True))
# which words rise and fall: at every ratio
assert (at["theorem-2a"] >= 0).all()
# how fast: only with a fast decoder, and γ only with a slow one
for name in ("theorem-1-span", "theorem-3-identity"):
    assert at[name][0] < 0 <= at[name][-1]
assert at["theorem-1-gamma"][-1] < 0 <= at["theorem-1-gamma"][0]
# how far: at no ratio
assert (at["theorem-4-growth"] < 0).all()
# ours: at every ratio, while it is trusted
assert (at["response"] >= 0).all()

# %% [markdown]
# **Why.** *Which* words rise depends on signs, and signs are robust. *How fast*
# they rise follows an equation in which the decoder has no memory; in fact its
# memory has a relative effect of order η_Z/η_Y. *How far* they rise depends on
# an estimate of ξ, which failed above. The last row is the theory with memory.
# It estimates how long it can be trusted, and is tested until then:

# %%
for ratio in (1, 10, 100):
    t = snap * np.geomspace(0.1, 100, 40)
    response = ss.response(mine, eta_y=0.9, eta_z=0.9 / ratio, t=t)
    until = min(response.attrs["trusted_until"], t[-1]) / snap
    print(f"η_Y/η_Z = {ratio:3d}: trusted until {until:.1f} of 100 t₀")

# %% [markdown]
# ## Try
#
# - Your own counts in `DIARY`, or a table of your own:
#   `ss.SequenceClasses(p_context=…, query=…, next_token=…)`, from a TOML file
#   (`from_toml`), or counted from a text (`from_corpus`, [tutorial
#   5](5_own_text.py)).
# - Sequences of finite length, by SGD: `ss.verify(mine, eta_y=0.9, eta_z=0.1,
#   context=128)`. Which verdicts become *undecided*?
# - Your own claim: `checks=["theorem-2", my_check]`; see
#   [claims](../claims.md#a-claim-of-your-own).
# - A map over two parameters: `scansnap verify --map theorem-3 --x
#   ratio=1:1000:log --y overlap=0.01:0.9`.
#
# ## Read on
#
# - [Claims](../claims.md): which statements fail, how a verdict is given, and
#   the verdicts for the paper's own data.
# - [What holds](../theory.md): drive, memory and response. [Where it
#   holds](../validity.md): maps of their error.
# - [The flow](../flow.md): the dynamics that `verify` checks.
