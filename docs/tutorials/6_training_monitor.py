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
# # A warning while a model trains
#
# Training can go wrong inside attention before the loss shows it. This
# tutorial trains a small GPT-2 with the probe, which measures every attention
# head and warns. You will provoke a warning with a learning rate of query and
# key weights that is far too large, read what the probe reports, and fix it.
# You will also see a false alarm. It takes half a minute on a CPU.
#
# You need `pip install 'scansnap[probe]'`. The tutorial downloads nothing: it
# builds the model from a configuration and generates the text.
#
# **The text.** The package contains six little stories: three last words with
# two next words each. *Kitten* and *bowl* precede *drinks milk*, *office* and
# *tired* precede *drinks coffee*. A sentence has sixteen words of a story, its
# last word, and the word to predict. Guessing costs ln 2 = 0.69 nats; attention
# must find the words that tell the stories apart.

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


def sentences(n, step):
    """n sentences, (n, T + 1); the same ``step`` gives the same ones."""
    sampler = ss.ClassSampler(stories, context=T)
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
# ## Training with the probe
#
# Two lines attach the probe: one before the loop builds it, one in the loop
# calls it. An *alert* is a condition that it checks at every measurement. By
# default it warns only of NaN and infinite values, because these are facts.
# Here we also ask for two rules of thumb: a largest attention logit above 100,
# and half of the heads with almost no entropy.
#
# `ss.param_groups` gives query and key weights `qk` times the learning rate of
# all other weights.

# %%
STEPS, UNSEEN, BATCH = 200, 1_000_000, 2_000_000  # training sees none of them
unseen = sentences(512, UNSEEN)
ALERTS = [
    ss.probe.alerts.nonfinite(),
    ss.probe.alerts.max_logit(100),
    ss.probe.alerts.entropy_collapse(),
]


def last_word_loss(model):
    """Loss of the word to predict, on sentences that training has not seen."""
    with torch.no_grad():
        logits = model(input_ids=unseen[:, :-1]).logits[:, -1]
    return F.cross_entropy(logits, unseen[:, -1]).item()


def train(qk, seed=0, steps=STEPS, stop_at_warning=False, on_alert=None):
    """AdamW at a constant rate; query and key weights have ``qk`` times it."""
    model = gpt2(seed)
    groups = ss.param_groups(model, lr=3e-3, qk=qk)
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    probe = ss.Probe(  # line 1
        model,
        sentences(32, BATCH),
        every="log:10",
        alerts=ALERTS,
        on_alert=on_alert,
        words=stories.words,
        optimizer=optimizer,
    )
    probe.step(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "step [0-9]+: ")  # on_alert has them
        for step in range(1, steps + 1):
            rows = sentences(32, step)
            logits = model(input_ids=rows[:, :-1]).logits
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            probe.step(step, loss=loss, last=step == steps)  # line 2
            if stop_at_warning and probe.fired_alerts:
                break
    return probe, last_word_loss(model)


# %% [markdown]
# ## A query/key rate that is far too large
#
# One hundred times the rate of the other weights:

# %%
bad, bad_loss = train(
    qk=100, on_alert=lambda alert: print(f"step {alert.step}: {alert.message}")
)
print(f"\nloss of the last word after {STEPS} steps: {bad_loss:.3f}")

# %% [markdown]
# The warnings come in the first steps. After the training, `probe.dataset()`
# has every measurement, and its *headline* says in one sentence what is wrong
# with which heads. *Exploding* means that the largest logit is above 100 and
# still grows; *collapsed* means almost no entropy, without one of the usual
# targets.

# %%
data = bad.dataset()
print(data.attrs["headline"])
first = min(alert.step for alert in bad.fired_alerts)
assert "exploding" in data.attrs["headline"]
assert first < STEPS / 10

# %% [markdown]
# ## The fix
#
# For a large logit, the table of [what to try](../warnings.md#what-to-try)
# begins with a lower learning rate for query and key weights. Train again with
# `qk=1`:

# %%
good, good_loss = train(qk=1)
print(good.dataset().attrs["headline"])
print(f"loss of the last word after {STEPS} steps: {good_loss:.3f}")
assert good.fired_alerts == []
assert good.dataset().attrs["headline"].startswith("No problem")
assert good_loss < bad_loss / 2

# %%
from scansnap.plots.style import SERIES, styled

with styled(7.0, 2.8) as figure:
    left, right = figure.subplots(1, 2)
    runs = {"query/key rate × 100": bad, "query/key rate × 1": good}
    for color, (name, probe) in zip(SERIES, runs.items(), strict=False):
        curves = probe.dataset()
        logit = curves.max_logit.max(("layer", "head"))
        left.plot(curves.step, logit, color=color, label=name)
        right.plot(curves.step, curves.train_loss, color=color)
    left.axhline(100, color="0.6", linestyle=":", label="threshold")
    left.axvline(first, color="0.6", label="first warning")
    left.set(yscale="log", ylabel="largest attention logit", xlabel="step")
    right.axvline(first, color="0.6")
    right.set(ylabel="training loss", xlabel="step")
    for axes in (left, right):
        axes.set(xscale="symlog", xlim=(0, STEPS))
        axes.set_xticks((0, 1, 10, 100), ("0", "1", "10", "100"))
    left.legend(fontsize=7)
figure

# %% [markdown]
# At the first warning the training loss of both runs is about the same. You may
# stop there and save the remaining steps: `stop_training=True` does it in the
# callbacks for the Hugging Face Trainer and Lightning, one line does it here.

# %%
stopped, _ = train(qk=100, stop_at_warning=True)
print(f"stopped after {int(stopped.dataset().step[-1])} of {STEPS} steps")
assert int(stopped.dataset().step[-1]) == first

# %% [markdown]
# ## How far can you trust it?
#
# A control: a rate that is only eight times as large, with three seeds. Its
# models learn the stories as well as those of the fixed run.

# %%
for seed in (0, 1, 2):
    probe, loss = train(qk=8, seed=seed)
    steps = [alert.step for alert in probe.fired_alerts]
    print(f"seed {seed}: loss {loss:.3f}, warnings at steps {steps}")
    assert loss < 0.1 * np.log(2)  # it has learned the stories
    assert steps  # and yet the probe warns: a false alarm

# %% [markdown]
# **Caution.** These runs are fine, and the probe warns of them: a large logit
# is a reason to look, not a verdict. Compare the loss with a run at a lower
# rate, as above. [How early, and how often
# wrongly](../warnings.md#how-early-and-how-often-wrongly) has the numbers for
# GPT-2 and Llama on real text: the alerts find many runs that silently stop
# learning, and also warn of some healthy ones.
#
# ## Try
#
# - `good.report("probe.html")` writes one page with all heads, which opens
#   offline. Compare it with `bad.report("bad.html")`.
# - Your own alert: a function of the history that returns a message or a truth
#   value, such as `lambda history: history[-1]["attention/entropy"] < 0.5`.
# - A large rate for *all* weights: `lr=0.1` and `qk=1`. Which alert comes
#   first? What does the loss say?
# - SGD instead of AdamW. Which `qk` does it need to warn?
#
# ## Read on
#
# - [Add the probe to your run](../attach.md): Hugging Face Trainer, Lightning,
#   accelerate, your own loop.
# - [What to do when it warns](../warnings.md): every alert, with what to try.
# - [Set how sparse attention becomes](7_query_key_rate.py): what a moderate
#   query/key rate is good for.
