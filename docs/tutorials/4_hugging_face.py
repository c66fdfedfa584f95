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
# # Watch a Hugging Face model train
#
# **The question.** The theory is about a model with one layer and two tables.
# GPT-2 has positions, residual connections, several heads, layers and Adam. Do
# its heads scan and snap? The probe looks at any PyTorch model while it trains,
# and leaves no trace in the training.
#
# This needs `pip install 'scansnap[probe]'`. Nothing is downloaded: the model
# is built from a configuration, and the text is made here.
#
# ## A text
#
# The package has six little stories in words: three last words with two next
# words each. *Kitten* and *bowl* stand before *drinks milk*, *office* and
# *tired* before *drinks coffee*, and *the* before everything. A sentence is
# sixteen words of a story, its last word, and the word to be guessed.

# %%
import textwrap
import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # no bars are shown

import numpy as np
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import scansnap as ss

stories = ss.SequenceClasses.bundled_words()
words = stories.words
T = 17  # sixteen words of context and the query


def sentences(classes, n, step):
    """n sentences, (n, T + 1); the same ``step`` gives the same ones."""
    sampler = ss.ClassSampler(classes, context=T)
    drawn = sampler(
        seeds=torch.tensor([0]), steps=torch.tensor([step]), batch_size=n
    )
    return torch.cat([drawn.tokens[0, 0], drawn.target[0, 0, :, None]], dim=1)


LOOKED_AT, COUNTED = 1_000_000, 2_000_000  # steps that training never comes to
looked_at = sentences(stories, 64, LOOKED_AT)
for row in looked_at[:3]:
    print(textwrap.fill(" ".join(words[token] for token in row), 76))

# %% [markdown]
# ## A model and two probes
#
# A probe is told on which batch to look, and by which corpus to tell common
# from distinct words. *Distinctness* of a word is the share of the corpus on
# words that are in more sentences: 0 is the most common, 1 the rarest. A head
# *scans* if the words it looks at become more distinct, beyond what chance
# would give.
#
# The second probe is a **control**. It looks at the same attention, but its
# corpus has the words renamed at random, so that its "distinctness" means
# nothing. It must find nothing.

# %%
HEADS, LAYERS, STEPS = 4, 2, 200


def gpt2():
    torch.manual_seed(0)
    size = {
        "n_embd": 64,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": T + 1,
    }
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    marks = {"vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(
        **size, **no_dropout, **marks, attn_implementation="eager"
    )
    return GPT2LMHeadModel(config)


def train(model, classes, probes):
    """AdamW at a constant rate; probes measure where it is due."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []  # of the last word alone
    for step in range(STEPS + 1):
        for probe in probes:
            probe.step(step)
        rows = sentences(classes, 32, step)
        logits = model(input_ids=rows).logits
        loss = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten()
        )
        losses.append(F.cross_entropy(logits[:, -2], rows[:, -1]).item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def probe_of(model, classes, rename=None):
    batch = {"input_ids": sentences(classes, 64, LOOKED_AT)}
    corpus = sentences(classes, 4000, COUNTED)
    if rename is not None:
        corpus = rename[corpus]
    return ss.Probe(model, batch, corpus=corpus, every="log:10", words=words)


model = gpt2()
rename = torch.randperm(len(words), generator=torch.Generator().manual_seed(1))
probe, renamed = probe_of(model, stories), probe_of(model, stories, rename)

# %% [markdown]
# Where does the first layer look? Before training and after it, over the 64
# sentences: the share of attention on words that are distinct to one story, by
# head and by the position that looks.

# %%
own = {token for n in range(stories.n_classes) for token in stories.distinct(n)}
telling = torch.tensor([token in own for token in range(len(words))])
is_telling = telling[looked_at[:, :-1]].numpy()  # (sentence, word)


def on_distinct():
    """(head, position), mean over the sentences."""
    with torch.no_grad():
        seen = model(input_ids=looked_at[:, :-1], output_attentions=True)
    attention = seen.attentions[0].numpy()  # (sentence, head, position, word)
    return (attention * is_telling[:, None, None]).sum(-1).mean(0)


before = on_distinct()
losses = train(model, stories, [probe, renamed])
after = on_distinct()
print(f"loss of the last word: {losses[0]:.2f} → {np.mean(losses[-10:]):.2f}")
print(f"two words may follow a query: guessing would cost {np.log(2):.2f}")
print("on distinct words, before:", *(f"{x:.2f}" for x in before.mean(1)))
print("                   after: ", *(f"{x:.2f}" for x in after.mean(1)))
print("     by the query, after: ", *(f"{x:.2f}" for x in after[:, -1]))
assert np.mean(losses[-10:]) < 0.2 * np.log(2)
assert after.mean() > before.mean() + 0.15

# %%
from scansnap.plots.style import SERIES, styled

with styled(7.0, 2.8) as figure:
    axes = figure.subplots()
    axes.plot(range(T), before.mean(0), "--", color="0.5", label="before")
    for head in range(HEADS):
        axes.plot(
            range(T), after[head], color=SERIES[head], label=f"head {head}"
        )
    axes.set(xlabel="position that looks (the last is the query)", ylim=(0, 1))
    axes.set(ylabel="share on distinct words")
    axes.legend(ncols=5, loc="lower center")
figure

# %% [markdown]
# Most positions come to look at words that tell. The query itself need not, and
# here GPT-2 differs from the model of the theory: with a second layer the query
# may read what other positions have gathered. Run it with another seed, and the
# heads divide the work in another way. So one position proves nothing, and
# neither does one head: the probe takes all of them, in 64 sentences, with
# intervals.
#
# ## Which heads scan, which snap

# %%
seen, control = probe.dataset(), renamed.dataset()

print("head verdict, scan index and its interval over sentences")
ALL = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
for layer, head in ALL:
    at = {"layer": layer, "head": head, "step": -1}
    one, other = seen.isel(at), control.isel(at)
    index, low, high = one.scan_index, one.scan_low_all, one.scan_high_all
    print(
        f"{layer}.{head}  {one.verdict.item():15s}",
        f"{index:+.3f} ({low:+.3f} to {high:+.3f}),",
        f"renamed {other.scan_index:+.3f}, frozen {one.frozenness_ln:.2f}",
    )

scans, renamed_scan = ((one.scans == 1).values for one in (seen, control))
print(f"\n{scans[0].sum()} of {HEADS} heads of the first layer scan,", end=" ")
print(f"{scans[1].sum()} of the second; renamed {renamed_scan.sum()}")
index = seen.scan_index.isel(step=-1).mean("head").values
assert scans[0].sum() >= 3
assert index[0] > 3 * abs(index[1])
assert not renamed_scan.any()

# %% [markdown]
# **What one sees.** The heads of the first layer scan: the words they look at
# become more distinct, by that share of the text. The second layer does so far
# less, if at all: it reads what the first has gathered, and its positions are
# no longer single words. The control finds nothing, from the same attention.
#
# *Frozen in ln t* is 1 for what stands still and 0 for what moves by the same
# amount in every e-fold of steps. From 0.5 on a head *snaps*.
#
# ## Is it the words?
#
# The control above asks whether the *measure* deceives. A second one asks
# whether *training* does: a text in which every story draws its words from the
# same mixture, with the same last and next words. There is nothing to find in
# it. The same model, the same rate, the same steps:

# %%
same = np.broadcast_to(stories.p_context.mean(0), stories.p_context.shape)
nothing = ss.SequenceClasses(
    p_context=same,
    query=stories.query,
    next_token=stories.next_token,
    words=words,
)
untold = gpt2()
watched = probe_of(untold, nothing)
lost = train(untold, nothing, [watched])
told = watched.dataset()
instead = told.scan_index.isel(step=-1).mean("head").values
scan, snap = ((told[name] == 1).values for name in ("scans", "snaps"))
print(f"loss of the last word: {np.mean(lost[-10:]):.2f}, it cannot be guessed")
print(f"first layer's mean scan index: {instead[0]:+.3f}, not {index[0]:+.3f}")
print(f"of {len(ALL)} heads {scan.sum()} scan, {snap.sum()} snap")
assert np.mean(lost[-10:]) > 0.9 * np.log(2)
assert abs(instead[0]) < index[0] / 5
assert scan.sum() < scans.sum()
assert snap.any()

# %%
with styled(7.0, 2.9) as figure:
    panels = figure.subplots(1, 3, sharey=True)
    titles = ("Words that tell", "Control: renamed", "Control: nothing to tell")
    for axes, data, title in zip(
        panels, (seen, control, told), titles, strict=True
    ):
        for layer, head in ALL:
            style = {
                "color": SERIES[layer],
                "label": None if head else f"layer {layer}",
            }
            axes.plot(data.step, data.scan_index[:, layer, head], **style)
        axes.axhline(0, color="0.7", linewidth=0.6)
        axes.set(title=title, xlabel="step", xscale="symlog", xlim=(0, STEPS))
        axes.set_xticks((0, 1, 10, 100), ("0", "1", "10", "100"))
    panels[0].set_ylabel("scan index")
    panels[0].legend()
figure

# %% [markdown]
# **A word of caution.** In the second control there is hardly any scan, and yet
# heads snap: what has nothing to find soon stops looking. *Snaps* alone says
# little; *scans and snaps* is the statement of the paper.  A learning rate that
# goes to zero freezes any attention as well, so the rate above is constant.
#
# And a text of six stories is made for scanning. On real text it is a matter of
# size: [the study](../probe_study.md) has GPT-2 and Llama on WikiText-2.
#
# ## Your own model
#
# ```python
# from scansnap.probe.hf import ProbeCallback
#
# words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
# probe = ss.Probe(model, batch, corpus=train_ids, words=words)
# callbacks = [ProbeCallback(probe)]
# Trainer(model, settings, train_dataset=data, callbacks=callbacks).train()
# probe.report("probe.html")  # one page that opens offline
# ```
#
# ## Try
#
# - SGD in place of AdamW: `torch.optim.SGD(model.parameters(), lr=0.1,
#   momentum=0.9)`. Do the heads still scan? Do they snap?
# - One layer: `LAYERS = 1`. Or eight heads: do all of them find the same words?
# - `seen.mass_by_decile`: where does the attention go, by tenths of
#   distinctness?
# - Look at `seen.rank_corr`: is it the rare words or the telling ones that
#   attention follows?
#
# ## Read on
#
# - [The probe](../probe.md): everything it measures, what it leaves behind
#   (nothing), and what may deceive.
# - [The dial](../dial.md): from the paper's model to a transformer, one
#   assumption at a time.
# - [What Adam does](3_adam.py).
