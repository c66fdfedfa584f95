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
# # Set how sparse attention becomes
#
# Query and key weights decide where a transformer attends; all other weights
# decide what it does with that. If query and key weights learn faster than the
# others, attention becomes sparser. This tutorial sets their learning rate in a
# small GPT-2, measures attention entropy, and compares runs fairly: at equal
# loss. It takes a minute on a CPU.
#
# You need `pip install 'scansnap[probe]'`. Nothing is downloaded.
#
# *Sparse* attention concentrates on few tokens: its entropy is small. The
# *ratio* is the learning rate of query and key weights over that of all other
# weights.
#
# **The text.** Six stories in words. Sixteen words of a story come first, then
# its last word, then the word to predict. Guessing costs ln 2 = 0.69 nats,
# because two words may follow each last word.

# %%
import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # no bars are shown

import numpy as np
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import scansnap as ss

torch.set_num_threads(1)  # the model is small
stories = ss.SequenceClasses.bundled_words()
T = 17  # sixteen words and the last word


def sentences(classes, n, step):
    """n sentences, (n, T + 1); the same ``step`` gives the same ones."""
    sampler = ss.ClassSampler(classes, context=T)
    drawn = sampler(
        seeds=torch.tensor([0]), steps=torch.tensor([step]), batch_size=n
    )
    return torch.cat([drawn.tokens[0, 0], drawn.target[0, 0, :, None]], dim=1)


def gpt2(seed):
    torch.manual_seed(seed)
    size = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": T + 1}
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    tokens = {"vocab_size": len(stories.words), "bos_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(**size, **no_dropout, **tokens, eos_token_id=0)
    )


# %% [markdown]
# ## One line sets the ratio
#
# `ss.param_groups` makes the parameter groups for any optimiser of torch.
# GPT-2 holds queries, keys and values in one tensor, which is split exactly.
# `ss.describe_groups` shows which weights get which rate:

# %%
print(ss.describe_groups(gpt2(0), lr=2e-3, qk=4))

# %% [markdown]
# ## Runs to compare
#
# The probe measures attention entropy every ten steps, averaged over heads. The
# loss is that of the last word, on sentences that training does not see.

# %%
STEPS, EVERY, LR, UNSEEN = 150, 10, 2e-3, 1_000_000


def train(classes, ratio, seed):
    """Steps, loss of the last word and attention entropy of one run."""
    model = gpt2(seed)
    groups = ss.param_groups(model, lr=LR, qk=ratio)
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    unseen = sentences(classes, 256, UNSEEN)
    probe = ss.Probe(model, unseen[:64, :-1], every=EVERY, optimizer=optimizer)
    losses = []
    for step in range(STEPS + 1):
        probe.step(step)
        if step % EVERY == 0:
            with torch.no_grad():
                logits = model(input_ids=unseen[:, :-1]).logits[:, -1]
            losses.append(F.cross_entropy(logits, unseen[:, -1]).item())
        rows = sentences(classes, 16, step)
        logits = model(input_ids=rows[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    data = probe.dataset()
    entropy = data.entropy.mean(("layer", "head")).values
    return data.step.values, np.array(losses), entropy


RATIOS, SEEDS = (1 / 4, 1, 4), (0, 1, 2)
runs = {
    (ratio, seed): train(stories, ratio, seed)
    for ratio in RATIOS
    for seed in SEEDS
}

# %% [markdown]
# ## Equal steps or equal loss?
#
# After the same number of steps one run may simply have learned more than
# another, and attention changes while a model learns. So we read each run where
# its loss first reaches half of ln 2: there all runs have learned the stories
# equally well.

# %%
LEVEL = np.log(2) / 2


def at_equal_loss(losses, entropy):
    """Entropy where the loss first is at most LEVEL, interpolated."""
    below = np.flatnonzero(losses <= LEVEL)
    assert len(below), "the run never reaches the level"
    i = below[0]
    share = (losses[i - 1] - LEVEL) / (losses[i - 1] - losses[i])
    return entropy[i - 1] + share * (entropy[i] - entropy[i - 1])


read = np.array(
    [[at_equal_loss(*runs[r, s][1:]) for s in SEEDS] for r in RATIOS]
)
start = runs[1, 0][2][0]
print(f"before training: entropy {start:.2f} nats (uniform attention)")
for ratio, values in zip(RATIOS, read, strict=True):
    print(f"ratio {ratio:<4g}  entropy at equal loss", *values.round(2))
assert (np.diff(read, axis=0) < 0).all()  # it falls with the ratio, every seed

# %% [markdown]
# **Result.** In all three seeds attention is sparser at equal loss if query and
# key weights learn faster.
#
# ## A control
#
# Does sparse attention show that the heads have found something? In the control
# every story draws its words from the same mixture. The context has no
# information, so there is nothing to attend to; model, rates and steps are the
# same. We compare entropy at the last step, because the control cannot reach
# half of ln 2.

# %%
same = np.broadcast_to(stories.p_context.mean(0), stories.p_context.shape)
nothing_to_find = ss.SequenceClasses(
    p_context=same,
    query=stories.query,
    next_token=stories.next_token,
    words=stories.words,
)
control = {ratio: train(nothing_to_find, ratio, seed=0) for ratio in RATIOS}
falls, control_falls = [], []
for ratio in RATIOS:
    falls.append(start - runs[ratio, 0][2][-1])
    control_falls.append(start - control[ratio][2][-1])
    print(
        f"ratio {ratio:<4g}  entropy falls by {falls[-1]:.2f} nats,",
        f"in the control by {control_falls[-1]:.2f}",
    )
assert control[1][1].min() > 0.9 * np.log(2)  # it has nothing to learn
assert (np.array(falls) > control_falls).all()
assert (np.diff(control_falls) > 0).all()

# %%
from scansnap.plots.style import SERIES, styled

with styled(7.0, 2.8) as figure:
    left, right = figure.subplots(1, 2, sharey=True)
    for color, ratio in zip(SERIES, RATIOS, strict=False):
        for seed in SEEDS:
            _, losses, entropy = runs[ratio, seed]
            label = None if seed else f"ratio {ratio:g}"
            left.plot(losses, entropy, color=color, label=label, linewidth=1)
        steps, _, entropy = control[ratio]
        right.plot(steps, entropy, color=color, linestyle="--")
        steps, _, entropy = runs[ratio, 0]
        right.plot(steps, entropy, color=color)
    left.axvline(LEVEL, color="0.6", linestyle=":")
    left.set(xlabel="loss of the last word", ylabel="attention entropy (nats)")
    left.set(xlim=(2, 0), ylim=(None, 2.25), title="Dotted: equal loss")
    right.set(xlabel="step", title="Dashed: control")
    left.legend(fontsize=7, ncols=3, loc="upper center")
figure

# %% [markdown]
# **Caution.** At a ratio of 4 entropy falls in the control, too, although there
# is nothing to find: query and key weights that learn fast grow without a
# purpose. At a ratio of 1/4 or 1 hardly anything happens in the control. So
# sparse attention alone is no sign that heads have learned something; compare
# with a control, and watch the largest logit.
#
# One task, one small model, three seeds: [the
# study](../rates.md#the-study) has GPT-2 and Llama on WikiText-2, other
# optimisers, and predictions that failed.
#
# ## Try
#
# - Does a faster query/key rate lower the loss? Compare `runs[r, s][1][-1]`.
# - `ss.param_groups(model, lr=LR, mlp=4)`: does the rate of another role do the
#   same?
# - A ratio that changes during training: `qk=ss.rates.Ratio(4, start=0.5)` with
#   `ss.rates.ratio_schedule`.
# - SGD instead of AdamW, with `lr=0.3`.
#
# ## Read on
#
# - [Choosing the query/key learning rate](../rates.md): what we recommend, and
#   what has not been measured.
# - [A warning while a model trains](6_training_monitor.py): what happens at a
#   ratio of 100.
# - [The theory that holds](../theory.md): how the ratio sets entropy in one
#   layer, and where the paper's Theorem 4 has the wrong sign.
