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
# The theory treats a model with one layer and two tables. GPT-2 has positions,
# residual connections, several heads and layers, and trains with Adam. This
# tutorial attaches the probe to a small GPT-2, finds which heads scan and which
# snap, and runs two controls that must show no effect. It takes about a
# minute on a CPU.
#
# You need `pip install 'scansnap[probe]'`. The tutorial downloads nothing: it
# builds the model from a configuration and generates the text.
#
# ## A text
#
# The package contains six little stories in words: three last words with two
# next words each. *Kitten* and *bowl* precede *drinks milk*, *office* and
# *tired* precede *drinks coffee*, and *the* precedes everything. A sentence has
# sixteen words of a story, its last word, and the word to predict.

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


PROBE_SEED, CORPUS_SEED = (
    1_000_000,
    2_000_000,
)  # steps that training never comes to
probe_batch = sentences(stories, 64, PROBE_SEED)
for row in probe_batch[:3]:
    print(textwrap.fill(" ".join(words[token] for token in row), 76))

# %% [markdown]
# ## A model and two probes
#
# A probe gets a fixed batch, and a corpus that decides which words are common
# and which are distinct. The *distinctness* of a word is the share of the
# corpus that belongs to words in more sentences: 0 is the most common word, 1
# the rarest. A head *scans* if the words it attends to become more distinct,
# beyond what chance would give.
#
# The second probe is a **control**. It measures the same attention, but its
# corpus has a shuffled vocabulary, so its "distinctness" means nothing. It must
# find nothing.

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
    tokens = {"vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(
        **size, **no_dropout, **tokens, attn_implementation="eager"
    )
    return GPT2LMHeadModel(config)


def train(model, classes, probes):
    """AdamW at a constant rate; the probes measure at their steps."""
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


def probe_of(model, classes, permutation=None):
    batch = {"input_ids": sentences(classes, 64, PROBE_SEED)}
    corpus = sentences(classes, 4000, CORPUS_SEED)
    if permutation is not None:
        corpus = permutation[corpus]
    return ss.Probe(model, batch, corpus=corpus, every="log:10", words=words)


model = gpt2()
permutation = torch.randperm(
    len(words), generator=torch.Generator().manual_seed(1)
)
probe, shuffled = (
    probe_of(model, stories),
    probe_of(model, stories, permutation),
)

# %% [markdown]
# Where does the first layer attend? The figure shows, before and after
# training, the share of attention on words that are distinct to one story, by
# head and by query position, averaged over 64 sentences.

# %%
own = {token for n in range(stories.n_classes) for token in stories.distinct(n)}
informative = torch.tensor([token in own for token in range(len(words))])
is_informative = informative[probe_batch[:, :-1]].numpy()  # (sentence, word)


def on_distinct():
    """(head, position), mean over the sentences."""
    with torch.no_grad():
        output = model(input_ids=probe_batch[:, :-1], output_attentions=True)
    attention = output.attentions[0].numpy()  # (sentence, head, position, word)
    return (attention * is_informative[:, None, None]).sum(-1).mean(0)


before = on_distinct()
losses = train(model, stories, [probe, shuffled])
after = on_distinct()
print(f"loss of the last word: {losses[0]:.2f} → {np.mean(losses[-10:]):.2f}")
print(f"two words may follow a query: guessing costs {np.log(2):.2f}")
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
    axes.set(xlabel="query position (the last predicts)", ylim=(0, 1))
    axes.set(ylabel="share on distinct words")
    axes.legend(ncols=5, loc="lower center")
figure

# %% [markdown]
# Most positions learn to attend to informative words. The last position need
# not: with a second layer it can read what other positions have gathered. With
# another seed the heads divide the work differently. So one position or one
# head proves nothing. The probe uses all of them, over 64 sentences, with
# intervals.
#
# ## Which heads scan, which snap

# %%
data, control = probe.dataset(), shuffled.dataset()

print("head verdict, scan index and its interval over sentences")
ALL = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
for layer, head in ALL:
    at = {"layer": layer, "head": head, "step": -1}
    head_data, head_control = data.isel(at), control.isel(at)
    index, low, high = (
        head_data.scan_index,
        head_data.scan_low,
        head_data.scan_high,
    )
    print(
        f"{layer}.{head}  {head_data.verdict.item():15s}",
        f"{index:+.3f} ({low:+.3f} to {high:+.3f}),",
        f"shuffled {head_control.scan_index:+.3f},",
        f"frozen {head_data.frozenness_ln:.2f}",
    )

scans, shuffled_scan = ((d.scans == 1).values for d in (data, control))
print(f"\n{scans[0].sum()} of {HEADS} heads of the first layer scan,", end=" ")
print(f"{scans[1].sum()} of the second; shuffled {shuffled_scan.sum()}")
index = data.scan_index.isel(step=-1).mean("head").values
assert scans[0].sum() >= 3
assert index[0] > 3 * abs(index[1])
assert not shuffled_scan.any()

# %% [markdown]
# **Result.** The heads of the first layer scan: the words they attend to become
# more distinct. The second layer does so far less, if at all. It reads what the
# first layer has gathered, so its positions no longer stand for single words.
# The control finds nothing in the same attention.
#
# *frozen* is the frozenness per unit of ln t: 1 for attention that stands
# still, 0 for attention that moves equally far whenever the number of steps
# grows by a factor of e. A head *snaps* from 0.5 on.
#
# ## Is it the words?
#
# The first control tests the *measure*. A second one tests *training*: in its
# text every story draws its words from the same mixture, with the same last and
# next words. There is nothing to learn from the context. Model, rate and steps
# are the same:

# %%
same = np.broadcast_to(stories.p_context.mean(0), stories.p_context.shape)
uninformative_stories = ss.SequenceClasses(
    p_context=same,
    query=stories.query,
    next_token=stories.next_token,
    words=words,
)
second_model = gpt2()
uninformative_probe = probe_of(second_model, uninformative_stories)
losses_2 = train(second_model, uninformative_stories, [uninformative_probe])
uninformative = uninformative_probe.dataset()
instead = uninformative.scan_index.isel(step=-1).mean("head").values
scan, snap = ((uninformative[name] == 1).values for name in ("scans", "snaps"))
print(
    f"loss of the last word: {np.mean(losses_2[-10:]):.2f}, the minimum is ln 2"
)
print(f"first layer's mean scan index: {instead[0]:+.3f}, not {index[0]:+.3f}")
print(f"of {len(ALL)} heads {scan.sum()} scan, {snap.sum()} snap")
assert np.mean(losses_2[-10:]) > 0.9 * np.log(2)
assert abs(instead[0]) < index[0] / 5
assert scan.sum() < scans.sum()
assert snap.any()

# %%
with styled(7.0, 2.9) as figure:
    panels = figure.subplots(1, 3, sharey=True)
    titles = (
        "Informative words",
        "Control: shuffled",
        "Control: uninformative",
    )
    for axes, curves, title in zip(
        panels, (data, control, uninformative), titles, strict=True
    ):
        for layer, head in ALL:
            style = {
                "color": SERIES[layer],
                "label": None if head else f"layer {layer}",
            }
            axes.plot(curves.step, curves.scan_index[:, layer, head], **style)
        axes.axhline(0, color="0.7", linewidth=0.6)
        axes.set(title=title, xlabel="step", xscale="symlog", xlim=(0, STEPS))
        axes.set_xticks((0, 1, 10, 100), ("0", "1", "10", "100"))
    panels[0].set_ylabel("scan index")
    panels[0].legend()
figure

# %% [markdown]
# **Caution.** In the second control hardly any head scans, and yet heads snap:
# attention with nothing to find soon stops moving. So *snaps* alone means
# little; the paper's statement is *scans and snaps*. A learning rate that
# decays to zero freezes any attention as well, so the rate above is constant.
#
# A text of six stories is made for scanning. [The study](../probe_study.md) has
# the results for GPT-2 and Llama on WikiText-2.
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
# - SGD instead of AdamW: `torch.optim.SGD(model.parameters(), lr=0.1,
#   momentum=0.9)`. Do the heads still scan? Do they snap?
# - One layer: `LAYERS = 1`. Or eight heads: do all of them find the same words?
# - `data.mass_by_decile`: where does the attention go, by tenths of
#   distinctness?
# - `data.rank_corr`: does attention follow rare words or informative ones?
#
# ## Read on
#
# - [The probe](../probe.md): everything it measures, and what can mislead you.
# - [The ablation study](../dial.md): from the paper's model to a transformer,
#   one assumption at a time.
# - [What Adam does](3_adam.py).
