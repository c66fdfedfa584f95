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
# **The question.** The theory is about a model with one layer and two tables. GPT-2 has
# positions, residual connections, several heads, layers and Adam. Do its heads scan and
# snap? The probe looks at any PyTorch model while it trains, and leaves no trace in the
# training.
#
# This needs `pip install 'scansnap[probe]'`. Nothing is downloaded: the model is built
# from a configuration, and the text is made here.
#
# ## A text
#
# The package has six little stories in words: three last words with two next words
# each. *Kitten* and *bowl* stand before *drinks milk*, *office* and *tired* before
# *drinks coffee*, and *the* before everything. A sentence is sixteen words of a story,
# its last word, and the word to be guessed.

# %%
import numpy as np
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import scansnap as ss

stories = ss.SequenceClasses.bundled_words()
words = stories.words
T = 17  # sixteen words of context and the query


def sentences(classes, n, step):
    """n sentences, (n, T + 1); the same ones whenever it is the same ``step``."""
    drawn = ss.ClassSampler(classes, context=T)(
        torch.tensor([0]), torch.tensor([step]), n
    )
    return torch.cat([drawn.tokens[0, 0], drawn.target[0, 0, :, None]], dim=1)


looked_at = sentences(
    stories, 64, step=1_000_000
)  # what the probe looks at; never trained on
for row in looked_at[:3]:
    print(*(words[token] for token in row))

# %% [markdown]
# ## A model and two probes
#
# A probe is told on which batch to look, and by which corpus to tell common from
# distinct words. *Distinctness* of a word is the share of the corpus on words that are
# in more sentences: 0 is the most common, 1 the rarest. A head *scans* if the words it
# looks at become more distinct, beyond what chance would give.
#
# The second probe is a **control**. It looks at the same attention, but its corpus has
# the words renamed at random, so that its "distinctness" means nothing. It must find
# nothing.

# %%
HEADS, LAYERS, STEPS = 4, 2, 200


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(words),
            n_positions=T + 1,
            n_embd=64,
            n_layer=LAYERS,
            n_head=HEADS,
            attn_implementation="eager",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def train(model, classes, probes):
    """AdamW at a constant rate; a probe is told the step and measures when due."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []  # of the last word alone
    for step in range(STEPS + 1):
        for probe in probes:
            probe.step(step)
        rows = sentences(classes, 32, step)
        logits = model(input_ids=rows).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten())
        losses.append(F.cross_entropy(logits[:, -2], rows[:, -1]).item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def probe_of(model, classes, rename=None):
    batch = {"input_ids": sentences(classes, 64, step=1_000_000)}
    corpus = sentences(classes, 4000, step=2_000_000)
    if rename is not None:
        corpus = rename[corpus]
    return ss.Probe(model, batch, corpus=corpus, every="log:10", words=words)


model = gpt2()
rename = torch.randperm(len(words), generator=torch.Generator().manual_seed(1))
probe, renamed = probe_of(model, stories), probe_of(model, stories, rename)

# %% [markdown]
# What does the query look at? Before training and after it, in one sentence, the first
# head of the first layer:


# %%
def attention_of(sentence):
    """Of the query, over the words up to it, by head of the first layer."""
    with torch.no_grad():
        seen = model(input_ids=sentence[None, :-1], output_attentions=True)
    return seen.attentions[0][0, :, -1].numpy()


sentence = looked_at[0]
before = attention_of(sentence)
losses = train(model, stories, [probe, renamed])
after = attention_of(sentence)
print(f"loss of the last word: {losses[0]:.2f} → {np.mean(losses[-10:]):.2f}")
print(f"two words may follow a query: guessing would cost {np.log(2):.2f}")
assert np.mean(losses[-10:]) < 0.2 * np.log(2)

# %%
from scansnap.paper.style import COMMON, DISTINCT, SERIES, styled

own = {word for n in range(stories.n_classes) for word in stories.distinct(n)}
colours = [DISTINCT if int(token) in own else COMMON for token in sentence[:-1]]
with styled(7.0, 3.2) as figure:
    for axes, values, title in zip(
        figure.subplots(2, 1, sharex=True, sharey=True),
        (before, after),
        ("Before training", "After"),
        strict=True,
    ):
        axes.bar(range(T), values[0], color=colours)
        axes.set(title=title, ylabel="attention")
    axes.set_xticks(
        range(T), [words[token] for token in sentence[:-1]], rotation=45, ha="right"
    )
figure

# %% [markdown]
# Blue words are distinct to one story, orange ones are shared. One sentence and one
# head prove nothing. The probe has all heads, 64 sentences, and intervals.
#
# ## Which heads scan, which snap

# %%
seen, control = probe.dataset(), renamed.dataset()


def heads(data):
    return [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


for layer, head in heads(seen):
    one = seen.isel(layer=layer, head=head)
    last = one.isel(step=-1)
    index, low, high = map(
        float, (last.scan_index, last.scan_low_all, last.scan_high_all)
    )
    print(
        f"layer {layer} head {head}: {one.verdict.item():16s}",
        f"scan index {index:+.3f} ({low:+.3f} to {high:+.3f}),",
        f"renamed {float(control.scan_index[-1, layer, head]):+.3f},",
        f"frozen {float(one.frozenness_ln):.2f}",
    )

scans = (seen.scans == 1).values
print(f"\n{scans[0].sum()} of {HEADS} heads of the first layer scan,", end=" ")
print(f"{scans[1].sum()} of the second; renamed {(control.scans == 1).values.sum()}")
index = seen.scan_index.isel(step=-1).mean("head").values
assert scans[0].sum() >= 3
assert index[0] > 3 * abs(index[1])
assert not (control.scans == 1).any()

# %% [markdown]
# **What one sees.** The heads of the first layer scan: the words they look at become
# more distinct, by that share of the text. The second layer does so far less, if at
# all: it reads what the first has gathered, and its positions are no longer single
# words. The control finds nothing, from the same attention.
#
# *Frozen in ln t* is 1 for what stands still and 0 for what moves by the same amount in
# every e-fold of steps. From 0.5 on a head *snaps*.
#
# ## Is it the words?
#
# The control above asks whether the *measure* deceives. A second one asks whether
# *training* does: a text in which every story draws its words from the same mixture,
# with the same last and next words. There is nothing to find in it. The same model, the
# same rate, the same steps:

# %%
same = np.broadcast_to(stories.p_context.mean(0), stories.p_context.shape)
nothing = ss.SequenceClasses(
    p_context=same, query=stories.query, next_token=stories.next_token, words=words
)
other = gpt2()
watched = probe_of(other, nothing)
lost = train(other, nothing, [watched])
told = watched.dataset()
found, instead = (
    float(one.scan_index.isel(step=-1, layer=0).mean()) for one in (seen, told)
)
print(f"loss of the last word: {np.mean(lost[-10:]):.2f}, so it cannot be guessed")
print(
    f"scan index, mean over the first layer's heads: {instead:+.3f}, with telling",
    end="",
)
print(f" words {found:+.3f}; of {LAYERS * HEADS} heads", end=" ")
print(f"{(told.scans == 1).values.sum()} scan, {(told.snaps == 1).values.sum()} snap")
assert np.mean(lost[-10:]) > 0.9 * np.log(2)
assert abs(instead) < found / 5
assert (told.scans == 1).values.sum() < scans.sum()
assert (told.snaps == 1).values.any()

# %%
with styled(7.0, 2.9) as figure:
    panels = figure.subplots(1, 3, sharey=True)
    for axes, data, title in zip(
        panels,
        (seen, control, told),
        ("Words that tell", "Control: renamed", "Control: nothing to tell"),
        strict=True,
    ):
        for layer, head in heads(data):
            label = f"layer {layer}" if head == 0 else None
            axes.plot(
                data.step,
                data.scan_index[:, layer, head],
                color=SERIES[layer],
                label=label,
            )
        axes.axhline(0, color="0.7", linewidth=0.6)
        axes.set(title=title, xlabel="step", xscale="symlog")
    panels[0].set_ylabel("scan index")
    panels[0].legend()
figure

# %% [markdown]
# **A word of caution.** In the second control there is hardly any scan, and yet heads
# snap: what has nothing to find soon stops looking. *Snaps* alone says little; *scans
# and snaps* is the statement of the paper.  A learning rate that goes to zero freezes
# any attention as well, so the rate above is constant.
#
# And a text of six stories is made for scanning. On real text it is a matter of size:
# [the probe](../probe.md) has GPT-2 and Llama on WikiText-2.
#
# ## Your own model
#
# ```python
# from scansnap.probe.hf import ProbeCallback
#
# words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
# probe = ss.Probe(model, batch, corpus=train_ids, out="probe.zarr", words=words)
# Trainer(model, settings, train_dataset=data, callbacks=[ProbeCallback(probe)]).train()
# probe.report("probe.html")  # one page that opens offline
# ```
#
# ## Try
#
# - SGD in place of AdamW: `torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)`.
#   Do the heads still scan? Do they snap?
# - One layer: `LAYERS = 1`. Or eight heads: do all of them find the same words?
# - `seen.mass_by_decile`: where does the attention go, by tenths of distinctness?
# - Look at `seen.rank_corr`: is it the rare words or the telling ones that attention
#   follows?
#
# ## Read on
#
# - [The probe](../probe.md): everything it measures, what it leaves behind (nothing),
#   and what may deceive.
# - [The dial](../dial.md): from the paper's model to a transformer, one assumption at a
#   time.
# - [What Adam does](3_adam.py).
