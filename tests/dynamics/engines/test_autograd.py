"""A module in place of the YZ model: the same numbers where it is the YZ model, and refusals where it cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from refusals import refused
from scansnap.classes.sampler import ClassSampler
from scansnap.sampling.mixture import MixtureSampler
from scansnap.sampling.sampler import Sequences, even

CLASSES = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=2, common=3, distinct=4)
M = CLASSES.vocab_size
COMMON = {"steps": 12, "batch_size": 6, "context": 9, "record": [0, 5, 12], "dtype": "float64", "device": "cpu"}


class YZ(nn.Module):
    """Lemma 1's model as one would write it: scores, softmax over positions, counts as one-hot sums, l2 norm."""

    def __init__(self, vocab_size: int, norm: str = "l2") -> None:
        super().__init__()
        self.y = nn.Parameter(torch.zeros(vocab_size, vocab_size))
        self.z = nn.Parameter(torch.zeros(vocab_size, vocab_size))
        self.norm = norm

    def forward(self, tokens: Tensor) -> Tensor:
        context, query = tokens[:, :-1], tokens[:, -1]
        b = torch.softmax(self.z[query].gather(1, context), dim=-1)  # (B, T − 1)
        c = self.by_token(context, b)  # (B, M)
        f = c / c.norm(dim=-1, keepdim=True) if self.norm == "l2" else c
        return f @ self.y

    def by_token(self, context: Tensor, b: Tensor) -> Tensor:
        return torch.zeros(len(b), self.z.shape[1], dtype=b.dtype).scatter_add(1, context, b)


class OneHotYZ(YZ):
    def by_token(self, context: Tensor, b: Tensor) -> Tensor:
        return (nn.functional.one_hot(context, self.z.shape[1]).to(b) * b[..., None]).sum(1)


@pytest.mark.parametrize(
    ("optimizer", "runs"),
    [
        ("sgd", {"momentum": [0.0, 0.9]}),
        ("nesterov", {"momentum": [0.5, 0.9], "weight_decay_y": 0.01, "weight_decay_z": [0.0, 0.1]}),
        ("adam", {}),
        ({"name": "adamw", "schedule": "cosine"}, {"weight_decay": 0.1}),
        ({"name": "sgd", "clip": 0.05}, {}),
        ("sign", {}),
    ],
)
def test_the_yz_model_as_a_module_gives_the_hand_written_numbers(optimizer, runs) -> None:
    grid = ss.grid(eta_y=[0.3, 0.05], eta_z=0.2, seed=[0, 7], **runs)
    hand = ss.simulate(CLASSES, grid, optimizer=optimizer, init="uniform", sampling="tokens", variables=["y", "z"],
                       engine="general", **COMMON)  # fmt: skip
    module = ss.simulate(CLASSES, grid, optimizer=optimizer, init="uniform", module=YZ(M), attention=["z"],
                         variables=["batch_loss", "y", "z"], **COMMON)  # fmt: skip
    np.testing.assert_allclose(module.y, hand.y, rtol=0, atol=1e-10)
    np.testing.assert_allclose(module.z[:, :, CLASSES.queries], hand.z, rtol=0, atol=1e-10)
    assert np.abs(hand.z[:, -1] - hand.z[:, 0]).max() > 1e-3, "something was learnt"
    assert (module.status == "ok").all()


def test_what_vmap_cannot_follow_is_trained_run_by_run() -> None:
    """``one_hot`` looks at its values, which vmap refuses."""
    one, other = (ss.simulate(CLASSES, ss.grid(eta_y=0.3, eta_z=0.2, seed=[0, 1]), module=module(M), attention=["z"],
                              variables="z", **COMMON) for module in (YZ, OneHotYZ))  # fmt: skip
    np.testing.assert_allclose(one.z, other.z, rtol=0, atol=1e-14)


def test_another_model_gives_other_numbers() -> None:
    """The comparison can fail: without its norm it is another model."""
    hand, module = (
        ss.simulate(CLASSES, eta_y=0.3, eta_z=0.2, variables="z", **options, **COMMON)
        for options in ({"sampling": "tokens"}, {"module": YZ(M, "none"), "attention": ["z"]})
    )
    assert np.abs(module.z[:, :, CLASSES.queries].values - hand.z.values).max() > 1e-3


def test_the_loss_is_that_of_the_hand_written_batch() -> None:
    hand = ss.simulate(CLASSES, eta_y=0.3, eta_z=0.2, sampling="tokens", variables="batch_loss", **COMMON)
    module = ss.simulate(CLASSES, eta_y=0.3, eta_z=0.2, module=YZ(M), attention=["z"], **COMMON)
    np.testing.assert_allclose(module.batch_loss, hand.batch_loss, rtol=1e-12)


def test_checkpoints_and_resume_continue_to_the_same_numbers(tmp_path) -> None:
    options = {**COMMON, "optimizer": "adam", "module": YZ(M), "attention": ["z"], "init": "normal(0.1)"}
    whole = ss.simulate(CLASSES, eta_y=0.1, eta_z=0.1, **options, variables=["batch_loss", "z"])

    def stop(done, total):
        if done >= 5:
            raise KeyboardInterrupt

    options |= {"save_to": tmp_path / "m.zarr", "variables": ["batch_loss", "z"]}
    with pytest.raises(ss.Interrupted) as interrupted:
        ss.simulate(CLASSES, eta_y=0.1, eta_z=0.1, **options, progress=stop)
    assert interrupted.value.partial.attrs["stopped"] == "interrupted"
    with refused("the unfinished run", names="attention"):
        ss.simulate(CLASSES, eta_y=0.1, eta_z=0.1, **{**options, "attention": []}, resume=True)
    again = ss.simulate(CLASSES, eta_y=0.1, eta_z=0.1, **options, resume=True)
    np.testing.assert_array_equal(again.z, whole.z)
    np.testing.assert_array_equal(again.batch_loss, whole.batch_loss)
    loaded = ss.load(tmp_path / "m.zarr")
    assert loaded.attrs["stopped"] == "complete"
    assert loaded.z.dims == ("run", "step", "z_0", "z_1")


def test_runs_do_not_depend_on_what_runs_beside_them(monkeypatch) -> None:
    from scansnap.dynamics.engines import autograd

    def trained(seed):
        return ss.simulate(CLASSES, ss.grid(eta_y=0.3, eta_z=0.2, seed=seed), module=YZ(M), attention=["z"],
                           variables="z", init="uniform", **COMMON)  # fmt: skip

    together = trained([3, 4, 5])
    monkeypatch.setattr(autograd, "_GROUP_FLOATS", 1)  # one run at a time
    np.testing.assert_allclose(trained([5]).z[0], together.z[2], rtol=0, atol=1e-14)
    np.testing.assert_allclose(trained([3, 4, 5]).z, together.z, rtol=0, atol=1e-14)


class Bag(nn.Module):
    """Every position: logits of the mean embedding so far."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(m, 8), nn.Linear(8, m)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).cumsum(1)
        return self.out(x / torch.arange(1, tokens.shape[1] + 1)[:, None])


def test_classes_may_share_a_next_token_and_labels_may_be_soft() -> None:
    """Two classes of different queries with one next token, hard and as distributions: the same expected gradients."""
    table, query = CLASSES.p_context, CLASSES.query
    shared = np.full(CLASSES.n_classes, CLASSES.next_token[0])
    soft = np.zeros((CLASSES.n_classes, M))
    soft[:, shared[0]] = 1.0
    torch.manual_seed(0)
    losses = []
    for labels in ({"next_token": shared}, {"p_next": soft, "soft": True}):
        sampler = MixtureSampler(table, query, context=9, **labels)
        data = ss.simulate(sampler, eta_y=0.5, eta_z=0.5, module=YZ(M), attention=["z"], **COMMON)
        losses.append(data.batch_loss.values)
    np.testing.assert_allclose(*losses, rtol=1e-12)
    assert losses[0][0, -1] < losses[0][0, 0], "one next token for all is learnt at once"
    np.testing.assert_allclose(losses[0][0, 0], np.log(M), rtol=1e-12)


class Chain:
    """Each token is followed by the next one on a ring; every position but the first is asked."""

    vocab_size = 5

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        start = (seeds[:, None, None] + steps[:, None] + torch.arange(batch_size)) % 5
        tokens = (start[..., None] + torch.arange(4)) % 5
        target = (tokens + 1) % 5
        target[..., 0] = -1
        return Sequences(tokens, target, even(tokens))

    def describe(self) -> str:
        return "a ring of 5"


def test_every_position_may_be_a_query() -> None:
    torch.manual_seed(1)
    data = ss.simulate(Chain(), eta_y=1.0, eta_z=1.0, steps=200, batch_size=5, module=Bag(5), record=[0, 200],
                       dtype="float64", device="cpu")  # fmt: skip
    first, last = data.batch_loss.values[0]
    assert last < 0.5 * first
    assert data.attrs["data"] == "a ring of 5"
    assert data.attrs["module"] == "Bag"


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(M, M))

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.dropout(self.w, 0.5)[tokens[:, -1]]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"module": Dropping()}, "module"), ({"module": nn.Identity()}, ("module", "Identity")),
        ({"module": nn.Embedding(M, 3)}, "what the module returns"),
        ({"module": YZ(M), "attention": ["q"]}, "attention"), ({"module": YZ(M), "norm": "none"}, "norm"),
        ({"module": YZ(M), "variables": ["entropy"]}, "variables"), ({"module": YZ(M), "context": np.inf}, "context"),
        ({"attention": ["z"]}, "attention"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_one_sentence(options, field) -> None:
    with refused(field):
        ss.simulate(CLASSES, eta_y=0.1, eta_z=0.1, **{**COMMON, **options})


def test_a_sampler_needs_a_module() -> None:
    with refused("classes", names="SequenceClasses"):
        ss.simulate(ClassSampler(CLASSES, 9), eta_y=0.1, eta_z=0.1)


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_parameters_of_modules_inside_are_saved_and_resumed(tmp_path, suffix) -> None:
    """Their names have dots."""
    torch.manual_seed(2)
    options = {"eta_y": 0.1, "eta_z": 0.1, "steps": 8, "batch_size": 5, "module": Bag(5), "attention": ["embed"],
               "optimizer": {"y": "sgd", "z": "adam"}, "momentum": 0.5, "record": [0, 4, 8], "device": "cpu",
               "variables": ["embed.weight", "out.bias"]}  # fmt: skip
    whole = ss.simulate(Chain(), **options)

    def stop(done, total):
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(ss.Interrupted):
        ss.simulate(Chain(), **options, save_to=tmp_path / f"m.{suffix}", progress=stop)
    ss.simulate(Chain(), **options, save_to=tmp_path / f"m.{suffix}", resume=True)
    again = ss.load(tmp_path / f"m.{suffix}")
    for name in options["variables"]:
        np.testing.assert_array_equal(again[name], whole[name])
    assert float(np.abs(whole["embed.weight"][0, -1] - whole["embed.weight"][0, 0]).max()) > 0
