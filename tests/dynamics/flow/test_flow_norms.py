"""The flow with other norms and residual connections: against SGD, autograd, the fast field and exact invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
import torch
from gap_reference import ragged
from torch import Tensor

import scansnap as ss
from refusals import refused
from scansnap.dynamics import norms
from scansnap.dynamics.flow import compact
from scansnap.dynamics.flow.compact import CompactFlow, PaddedLayout
from scansnap.dynamics.flow.dense import DenseFlow
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.norms import NORMS, Norm
from scansnap.results.variables import FLOWING

EVERYTHING = FLOWING
MODELS = [(norm, residual) for norm in ("l2", "none", "layernorm") for residual in ("none", "normed", "plain")]
CPU = torch.device("cpu")


def state(classes: ss.SequenceClasses, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Some Y that a flow from 0 could have (outputs never right alike, columns summing to 0), and some z."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(classes.vocab_size, classes.n_classes + 1))
    return y, rng.normal(size=(len(classes.queries), classes.vocab_size))


def plain_rates(
    classes: ss.SequenceClasses, model: ss.ModelConfig, y: np.ndarray, z: np.ndarray
) -> tuple[Tensor, Tensor]:
    field = DenseFlow(classes, model, 1.0, 1.0, z, CPU)
    field.y.value.copy_(torch.as_tensor(y))
    field.rates(0, np.zeros(0))
    return field.y.rate[0], field.z.rate[0]


# --- the field ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "residual"), MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_field_is_the_gradient(norm: str, residual: str, seed: int) -> None:
    """Autograd of Σ p_n log α_n over all M outputs, with the formulas of the norms written out."""
    classes = ragged(seed)
    y, z = state(classes, seed)
    dy, dz = plain_rates(classes, ss.ModelConfig(norm=norm, residual=residual), y, z)

    def normed(v: Tensor) -> Tensor:
        if norm == "none":
            return v
        return v / v.norm() if norm == "l2" else (v - v.mean()) / v.std(correction=0)

    m = classes.vocab_size
    full = np.repeat(y[:, -1:], m, axis=1)
    full[:, classes.next_token] = y[:, :-1]
    y_, z_ = torch.tensor(full, requires_grad=True), torch.tensor(z, requires_grad=True)
    objective = torch.zeros((), dtype=torch.float64)
    for n in range(classes.n_classes):
        z_m = z_[int(np.searchsorted(classes.queries, classes.query[n]))]
        c = torch.softmax(z_m + torch.tensor(classes.p_context[n]).log(), 0)
        e_m = torch.eye(m, dtype=torch.float64)[int(classes.query[n])]
        f = {"none": lambda c=c: normed(c), "normed": lambda c=c, e_m=e_m: normed(normed(c) + e_m),
             "plain": lambda c=c, e_m=e_m: normed(c + e_m)}[residual]()  # fmt: skip
        right = torch.log_softmax(f @ y_, 0)[int(classes.next_token[n])]
        objective = objective + float(classes.p_class[n]) * right
    exact_y, exact_z = (x.numpy() for x in torch.autograd.grad(objective, (y_, z_)))
    never = np.setdiff1d(np.arange(m), classes.next_token)[0]
    np.testing.assert_allclose(dy[:, :-1], exact_y[:, classes.next_token], atol=1e-13)
    np.testing.assert_allclose(dy[:, -1], exact_y[:, never], atol=1e-13)
    np.testing.assert_allclose(dz, exact_z, atol=1e-13)
    assert np.abs(exact_z).max() > 1e-3


@pytest.fixture(params=["compiled", "torch"])
def compact_field(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations of the compact field; the compiled one where it is installed."""
    if request.param == "torch":
        monkeypatch.setattr(compact, "SMALL", 0)


@pytest.mark.usefixtures("compact_field")
@pytest.mark.parametrize("seed", range(4))
def test_the_compact_field_is_the_dense_one(seed: int) -> None:
    """flow.c, or decoder_rows.py and compact.py, against dense.py, at any state."""
    classes = ragged(seed, n_classes=7, n_queries=3)
    y, z = state(classes, seed)
    y[~(classes.p_context > 0).any(0)] = 0  # rows of tokens in no context: the fast field has none
    exact_y, exact_z = plain_rates(classes, ss.ModelConfig(), y, z)
    places = PaddedLayout(classes)
    fast = CompactFlow(places, 1.0, 1.0, z, CPU)
    full = np.repeat(y[:, -1:], classes.vocab_size, axis=1)
    full[:, classes.next_token] = y[:, :-1]
    fast.put_y(full)
    fast.rates(0, np.zeros(0))
    fast.put_y(np.zeros_like(full))
    rates = fast.y(np.ones(1))
    never = np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)[0]
    np.testing.assert_allclose(rates[:, classes.next_token], exact_y[:, :-1], atol=1e-14)
    np.testing.assert_allclose(rates[:, never], exact_y[:, -1], atol=1e-14)
    np.testing.assert_allclose(fast.z.rate[0], exact_z[places.cell_query, places.cell_token], atol=1e-14)


@pytest.mark.usefixtures("compact_field")
@pytest.mark.parametrize(
    "classes", [ragged(3), ss.SequenceClasses.syn_medium(3), ss.SequenceClasses.zipf(60, 4, overlap=0.5)]
)
def test_both_fields_make_the_same_flow(classes: ss.SequenceClasses) -> None:
    t = np.append(0, np.geomspace(0.1, 1e4, 12))
    z0 = np.random.default_rng(0).normal(size=(len(classes.queries), classes.vocab_size))
    fast = flow(classes, 1.0, 0.5, t, z0=z0, rtol=1e-10, variables=EVERYTHING)
    plain = flow(classes, 1.0, 0.5, t, z0=z0, rtol=1e-10, variables=EVERYTHING, field="dense")
    assert (fast.attrs["field"], plain.attrs["field"]) == ("compact", "dense")
    for name in EVERYTHING:
        np.testing.assert_allclose(plain[name], fast[name], rtol=1e-8, atol=1e-11, err_msg=name)
    assert fast.z.dims == plain.z.dims
    assert list(fast.coords) == list(plain.coords)
    for name in fast.coords:
        np.testing.assert_array_equal(plain[name], fast[name])


# --- the flow ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "residual"), MODELS)
def test_expected_sgd_tends_to_the_flow_with_slope_one_in_the_rate(norm: str, residual: str) -> None:
    classes, end, rates = ss.SequenceClasses.syn_medium(1), 20.0, np.array([0.08, 0.04, 0.02])
    exact = flow(classes, 1.0, 0.5, [end], norm=norm, residual=residual, rtol=1e-10, variables=("attention", "z", "y"))
    assert exact.attrs["field"] == ("compact" if (norm, residual) == ("l2", "none") else "dense")
    runs, steps = ss.grid(eta_z=0.5 * rates, ratio=2.0), np.round(end / rates).astype(int)
    data = ss.simulate(classes, runs, steps=int(steps.max()), context=math.inf, batch_size=None, norm=norm,
                       residual=residual, dtype="float64", record=steps, variables=list(exact.data_vars))  # fmt: skip
    for name in exact.data_vars:
        off = [float(abs(data[name].sel(run=i, step=n) - exact[name][0]).max()) for i, n in enumerate(steps)]
        slope = np.polyfit(np.log(rates), np.log(off), 1)[0]
        assert abs(slope - 1) < 0.1, f"slope {slope:.3f} of the errors {off} of {name}"
        # one step of SGD off, relative to how far it went: attention of P(l|n) moves little
        assert off[-1] < 0.02 * np.abs(exact[name].values).max()


def test_the_flow_of_another_model_is_another_flow() -> None:
    """The control: held against the wrong norm or residual the error does not fall with the rate."""
    classes, end, rates = ss.SequenceClasses.syn_medium(1), 20.0, np.array([0.08, 0.02])
    steps = np.round(end / rates).astype(int)
    data = ss.simulate(classes, ss.grid(eta_z=0.5 * rates, ratio=2.0), steps=int(steps.max()), context=math.inf,
                       batch_size=None, dtype="float64", record=steps)  # fmt: skip
    for norm, residual in (("none", "none"), ("l2", "plain"), ("layernorm", "none")):
        wrong = flow(classes, 1.0, 0.5, [end], norm=norm, residual=residual).attention[0]
        errors = [float(abs(data.attention.sel(run=i, step=n) - wrong).max()) for i, n in enumerate(steps)]
        assert errors[1] > 0.8 * errors[0] > 0, (norm, residual)


@pytest.mark.parametrize(("norm", "residual"), MODELS)
def test_its_own_tolerance(norm: str, residual: str) -> None:
    classes, t = ragged(2), np.geomspace(0.1, 300, 20)
    exact = flow(classes, 1.0, 0.5, t, norm=norm, residual=residual, rtol=1e-12, atol=1e-15)
    data = flow(classes, 1.0, 0.5, t, norm=norm, residual=residual, rtol=1e-7)
    assert np.abs(data.attention - exact.attention).max() < 3e-7
    scale = np.abs(exact.z).max("token")
    assert (np.abs(data.z - exact.z) <= 1e-6 * scale + 1e-12).all()


@pytest.mark.parametrize(("norm", "residual"), MODELS)
def test_what_is_conserved(norm: str, residual: str) -> None:
    """Σ_j Y[l, j] = 0 and Σ_l z_ml = its start in every model; rows that do not enter f stay 0, and z elsewhere."""
    classes = ragged(1, n_queries=3)
    z0 = np.random.default_rng(1).normal(size=(3, classes.vocab_size))
    data = flow(classes, 1.0, 1.0, [1.0, 100.0, 1e4], z0=z0, norm=norm, residual=residual, variables=EVERYTHING)
    assert float(abs(data.y.sum("output")).max()) < 1e-12 * float(abs(data.y).max())
    assert float(abs((data.z - z0).sum("token")).max()) < 1e-11
    assert float(abs(data.z_rate.sum("token")).max()) < 1e-13
    never = np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)
    assert float(data.y.isel(output=never).std("output").max()) < 1e-14
    context = classes.p_context > 0
    for row, query in enumerate(classes.queries):
        fixed = ~context[classes.query == query].any(0)
        assert (data.z.values[:, row, fixed] == z0[row, fixed]).all()
    enters = context.copy()
    if residual != "none":
        enters[np.arange(classes.n_classes), classes.query] = True
    if NORMS[norm].dense:
        enters[:] = True
    np.testing.assert_array_equal(np.isnan(data.g.values), np.broadcast_to(~enters, data.g.shape))
    assert (data.f.values[:, ~enters] == 0).all()
    assert (data.y.values[:, ~enters.any(0)] == 0).all()
    assert (np.abs(data.y.values[:, enters.any(0)]).max(-1) > 0).all()


def size_of_f(data: object, norm: str) -> float:
    """What each norm fixes of f, at its worst: ‖f‖ = 1, Σ f = 1, ‖f‖² = M."""
    f = data.f.values
    found = {"l2": (f**2).sum(-1), "none": f.sum(-1), "layernorm": (f**2).mean(-1)}[norm]
    return float(np.abs(found - 1).max())


@pytest.mark.parametrize("norm", ["l2", "none", "layernorm"])
def test_what_each_norm_fixes_and_the_others_do_not(norm: str) -> None:
    classes, t = ragged(4), [0.0, 3.0, 50.0]
    data = {name: flow(classes, 1.0, 1.0, t, norm=name, variables=("f",)) for name in ("l2", "none", "layernorm")}
    off = {name: size_of_f(data[name], norm) for name in data}
    assert off.pop(norm) < 1e-12
    assert min(off.values()) > 1e-2


def law(classes: ss.SequenceClasses, data: object, norm: str) -> np.ndarray:
    """ż_l − (½ d‖Y_l‖²/dt/η_Y less what the norm takes), one query: 0 for the norm it was derived for (η = 1)."""
    found = []
    for i in range(data.sizes["t"]):
        at = data.isel(t=i)
        c, f, g, p = at.attention.values, at.f.values, np.nan_to_num(at.g.values), classes.p_class[:, None]
        fg = (f * g).sum(1, keepdims=True)
        taken = f * f if norm == "l2" else c
        growth = (p * f * g).sum(0)  # Y_l · dY_l/dt = Σ_n p_n f_nl g_nl
        found.append(at.z_rate.values[0] - (growth - (p * taken * fg).sum(0)))
    return np.array(found)


@pytest.mark.parametrize("norm", ["l2", "none"])
def test_single_query_rates_follow_from_the_growth_of_y(norm: str) -> None:
    """ż_l = η_Z (½ d‖Y_l‖²/dt/η_Y − Σ_n p_n (f_n·g_n) a_nl), a = f² for l2 and c without norm, not with layernorm."""
    classes = ragged(1, n_queries=1)
    data = flow(classes, 1.0, 1.0, [2.0, 60.0], norm=norm, variables=EVERYTHING)
    other = flow(classes, 1.0, 1.0, [2.0, 60.0], norm="layernorm", variables=EVERYTHING)
    assert np.abs(law(classes, data, norm)).max() < 1e-14
    assert np.abs(law(classes, other, norm)).max() > 1e-4


def test_without_a_norm_attention_goes_one_hot_and_with_l2_it_stays_a_mixture() -> None:
    """Late times: 1 − c_max falls without bound in ln t for no norm, and hardly for l2."""
    classes = ss.SequenceClasses.synthetic(1, 2)
    t = [1e4, 1e8]
    left = {n: 1 - flow(classes, 1.0, 1.0, t, norm=n).attention.max("token").values.max(1) for n in ("none", "l2")}
    assert left["none"][1] < 0.7 * left["none"][0]
    assert left["none"][1] < 0.8 * left["l2"][1]


def test_without_a_norm_equal_tokens_are_told_apart_by_rounding() -> None:
    """A change of z(0) grows by 3e4 where attention goes one-hot (1e11 with 20 classes), and shrinks with l2."""
    classes = ss.SequenceClasses.synthetic(1, 6)
    z0 = np.zeros((1, classes.vocab_size))
    z0[0, 0] = 1e-10
    grown = {}
    for norm in ("none", "l2"):
        one, other = (flow(classes, 1.0, 2.0, [3e3], norm=norm, z0=z, rtol=1e-10) for z in (None, z0))
        grown[norm] = float(abs(one.z - other.z).max()) / 1e-10
    assert grown["none"] > 1e4
    assert grown["l2"] < 2


# --- where it is not defined -------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [3, 7, 8])
@pytest.mark.parametrize("residual", ["none", "normed"])
def test_layernorm_of_uniform_attention_is_refused_before_the_work(m: int, residual: str) -> None:
    """Rounding makes f ±1 instead of 0/0 where 1/M is no binary number; that is refused as well."""
    p = np.full((2, m), 1 / m)
    p[0] = np.arange(1, m + 1) / np.arange(1, m + 1).sum()
    classes = ss.SequenceClasses(p, [0, 0], [1, 2])
    with refused("norm"):
        flow(classes, t=[1.0], norm="layernorm", residual=residual)
    assert flow(classes, t=[1.0], norm="layernorm", residual="plain").attrs["stopped"] == "complete"


def test_a_norm_that_stops_being_defined_ends_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm with a wall: the flow goes up to it, keeps what is done and says so."""
    wall = 0.125

    def forward(v: Tensor, lift: norms.Lift) -> Tensor:
        return torch.where(v.amax(-1, keepdim=True) < wall, v, torch.nan)

    monkeypatch.setitem(NORMS, "wall", Norm(forward, lambda g, v, f, lift: g))
    classes = ss.SequenceClasses.syn_small()
    t = np.geomspace(0.1, 1e4, 30)
    with pytest.warns(UserWarning, match=r"the flow became non-finite, or too steep for its rtol, at t = \d+"):
        data = flow(classes, 1.0, 1.0, t, norm="wall")
    assert data.attrs["stopped"] == "non-finite"
    n = data.sizes["t"] - 1
    np.testing.assert_array_equal(data.t[:n], t[:n])
    assert t[n - 1] < data.t[n] < t[n]
    assert np.isfinite(data.loss).all()
    reached = flow(classes, 1.0, 1.0, [float(data.t[n])], norm="none")
    np.testing.assert_allclose(data.attention[n], reached.attention[0], rtol=1e-7)
    assert float(data.attention.max()) == pytest.approx(wall, rel=1e-6)


# --- what it takes and says --------------------------------------------------------------------------------------


def test_a_norm_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """l2 under another name takes the dense field and makes the same flow."""
    monkeypatch.setitem(NORMS, "mine", NORMS["l2"])
    classes, t = ragged(0), [1.0, 100.0]
    mine, l2 = flow(classes, 1.0, 1.0, t, norm="mine"), flow(classes, 1.0, 1.0, t)
    assert (mine.attrs["norm"], mine.attrs["field"]) == ("mine", "dense")
    np.testing.assert_allclose(mine.attention, l2.attention, rtol=1e-7)


def test_the_model_is_said() -> None:
    data = flow(ragged(0), t=[1.0], norm="none", residual="plain")
    assert (data.attrs["norm"], data.attrs["residual"], data.attrs["field"]) == ("none", "plain", "dense")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"norm": "l3"}, "norm"),
        ({"residual": "yes"}, "residual"),
        ({"field": "fast"}, "field"),
    ],
)
def test_bad_input_is_named(wrong: dict, field: str) -> None:
    with refused(field):
        flow(ss.SequenceClasses.syn_small(), t=[1.0], **wrong)


def test_a_dense_field_beyond_memory_is_refused_before_the_work() -> None:
    p = scipy.sparse.eye(2000, 50_000, format="csr")
    classes = ss.SequenceClasses(p, np.zeros(2000, dtype=int), np.arange(2000))
    with refused("the size of the flow"):
        flow(classes, t=[1.0], norm="none", variables=("loss",))
