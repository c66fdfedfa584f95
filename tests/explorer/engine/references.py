"""What the page shows beside a run, from the package: the references that the engine is compared with."""

import math
from dataclasses import asdict, replace

import numpy as np

from scansnap.claims.assumptions import check_assumptions, overlap_matrix
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.time_windows import WINDOW_END
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.response.solve import response
from scansnap.dynamics.simulate import simulate
from scansnap.explorer.controls import BY_NAME
from scansnap.explorer.limits import LIMITS
from scansnap.measure.entropy import masked_entropy
from scansnap.runs import grid as run_grid
from scansnap.theory import gamma, growth, t_scan, t_snap
from scansnap.theory.applicability import SMALLEST_RATE, why_not_applicable

CLOCK = (
    "The theory's t counts SGD steps with one sequence each; a step on a batch's mean gradient moves as far, so "
    "t = step. Momentum μ acts as both rates divided by 1 − μ."
)
_SMALLEST = 1e-12  # of 1/C₀: below it the closed forms have nothing to say


def layout_of(reading):
    return make_layout(reading.classes, reading.settings.model, decays=reading.runs.decays)


def query_tokens(layout):
    """For each query the tokens that its classes attend to, ascending."""
    own = [layout.slots[n, : layout.n_slots[n]] for n in range(len(layout.slots))]
    return [np.unique(np.concatenate([own[n] for n in np.flatnonzero(layout.class_query == q)]))
            for q in range(len(layout.queries))]  # fmt: skip


def frame_layout(reading):
    """Where the numbers of a frame are."""
    layout, k = layout_of(reading), reading.classes.n_classes
    tokens = query_tokens(layout)
    sizes = {"loss": 1, "entropy": k, "growth": k, "log_chi": k, "attention": int(layout.n_slots.sum()),
             "z": sum(map(len, tokens))}  # fmt: skip
    offsets = np.cumsum([0, *sizes.values()]).tolist()
    return {
        "floats": offsets[-1], "fields": [{"name": name, "offset": o, "size": sizes[name]}
                                          for name, o in zip(sizes, offsets, strict=False)],
        "tokens": [layout.slots[n, : layout.n_slots[n]].tolist() for n in range(k)],
        "query_tokens": [own.tolist() for own in tokens], "queries": layout.queries.tolist(),
        "class_query": layout.class_query.tolist(),
    }  # fmt: skip


def is_too_large(reading):
    """Whether a set-up is beyond what a page computes: numbers in a frame, products in a step."""
    layout, settings = layout_of(reading), reading.settings
    rows, columns, heads = len(layout.rows), len(layout.columns), settings.model.heads
    samples = settings.batch_size or len(layout.slots)
    work = samples * (rows * columns + heads * layout.slots.shape[1] * 4)
    if settings.sampling == "tokens" and not math.isinf(settings.context):
        work += samples * int(settings.context) * 300
    tables = [
        (settings.optimizer_y, 1, rows, columns),
        (settings.optimizer_z, heads, len(layout.queries), layout.vocab_size),
    ]
    muon = sum(n * 15 / 20 * a * b * min(a, b) for rule, n, a, b in tables if rule.name == "muon")
    return work + muon > LIMITS["step_products"] or frame_layout(reading)["floats"] > LIMITS["frame_floats"]


def effective_rates(reading):
    """η_Y and η_Z with momentum counted in."""
    boost = 1 / (1 - float(reading.runs.momentum[0]))
    return float(reading.runs.eta_y[0]) * boost, float(reading.runs.eta_z[0]) * boost


def why_not(reading, failed_step=None):
    """Why the theory does not speak of this run; empty where it does."""
    runs = reading.runs
    eta_y, eta_z = float(runs.eta_y[0]), float(runs.eta_z[0])
    decay = max(float(runs.weight_decay_y[0]), float(runs.weight_decay_z[0]))
    failed = -1 if failed_step is None else failed_step
    return why_not_applicable(
        reading.settings.to_dict(), eta_y=eta_y, eta_z=eta_z, weight_decay=decay, failed_step=failed
    )


def theory(reading):
    """``Theory`` of the protocol."""
    eta_y, eta_z = effective_rates(reading)
    size = {"n_classes": reading.classes.n_classes, "vocab_size": reading.classes.vocab_size}
    timed = eta_y >= SMALLEST_RATE and reading.classes.vocab_size >= 2
    judged = timed and eta_z >= SMALLEST_RATE
    found = []
    if judged:
        # t ≫ K² is asked of sampled steps, at the end of what is judged
        t = (
            None
            if reading.settings.batch_size is None
            else min(reading.settings.steps, WINDOW_END * t_snap(eta_y=eta_y, **size))
        )
        found = check_assumptions(reading.classes, eta_y=eta_y, eta_z=eta_z, context=reading.settings.context, t=t)
    return {
        "applies": why_not(reading) == "", "why": why_not(reading), "eta_y": eta_y, "eta_z": eta_z,
        "ratio": eta_y / eta_z if eta_z >= SMALLEST_RATE else None,
        "t_scan": float(t_scan(eta_y=eta_y, **size)) if timed else None,
        "t_snap": float(t_snap(eta_y=eta_y, **size)) if timed else None,
        "c0": c0_of(reading.classes), "clock": CLOCK, "assumptions": [asdict(a) for a in found],
    }  # fmt: skip


def c0_of(classes):
    """C₀ from the overlaps at Z = 0: 1/C₀ = mean of Σ_{n'≠n} (f_nᵀf_n')²; None where classes do not overlap."""
    overlap = overlap_matrix(classes)
    np.fill_diagonal(overlap, 0.0)
    inverse = float((overlap**2).sum(1).mean())
    return 1 / inverse if inverse > _SMALLEST else None


def dominant_share(classes, n):
    """f_nl₀(0) of the class's dominant distinct token at Z = 0."""
    tokens, p = classes.support(n)
    own = np.isin(tokens, classes.distinct(n))
    return float(p[own].max() / np.linalg.norm(p)) if own.any() else None


def curves(reading, last, points=200, c0=None):
    """The closed forms on a grid of steps from 0 to ``last``, dense at the start."""
    eta_y, eta_z = effective_rates(reading)
    k, m = reading.classes.n_classes, reading.classes.vocab_size
    size = {"n_classes": k, "vocab_size": m}
    constant = c0_of(reading.classes) if c0 is None else c0
    t = grid(last, points)
    b = np.zeros((k, len(t)))
    if constant is not None and eta_z >= SMALLEST_RATE:
        p = reading.classes.p_class
        p_query = np.array([p[reading.classes.query == m].sum() for m in reading.classes.query])
        b = np.asarray(growth(t, eta_y=eta_y, eta_z=eta_z, c0=constant, p_class=p[:, None],
                              p_query=np.minimum(p_query, 1.0)[:, None], **size))  # fmt: skip
    share = np.array([[s if (s := dominant_share(reading.classes, n)) is not None else np.nan] for n in range(k)])
    return {
        "t": t, "growth": b, "chi_lower": 2 * share**2 * b, "chi_upper": np.where(np.isnan(share), np.nan, 2 * b),
        "gamma": gamma(t, eta_y=eta_y, **size), "t_scan": float(t_scan(eta_y=eta_y, **size)),
        "t_snap": float(t_snap(eta_y=eta_y, **size)), "c0": constant,
    }  # fmt: skip


def grid(last, points):
    """Half of the points evenly, half evenly in log t: smooth on either axis."""
    even = np.linspace(0, last, max(2, points // 2))
    return np.unique(np.concatenate([even, np.geomspace(min(0.1, last / 2), last, max(2, points - len(even)))]))


def overlay(reading, last, points, by="flow"):
    """The flow or the response at the effective rates, in the layout of the frames."""
    data = _response(reading, last, points) if by == "response" else _flow(reading, last, points)
    layout = layout_of(reading)
    c, z, query = data.attention.values, data.z.values, layout.class_query
    log_chi = []
    for n in range(reading.classes.n_classes):
        distinct = reading.classes.distinct(n)
        if len(distinct) == 0:
            log_chi.append(np.full(len(z), np.nan))
            continue
        top = distinct[np.argmax(c[0, n, distinct])]
        log_chi.append(2 * (z[:, query[n], top] - z[0, query[n], top]))
    slots = [layout.slots[n, : layout.n_slots[n]] for n in range(reading.classes.n_classes)]
    return {
        "t": data.t.values, "loss": data.loss.values, "entropy": data.entropy.values.T, "log_chi": log_chi,
        "growth": data.growth.values.T, "trusted_until": data.attrs.get("trusted_until"),
        "attention": [c[:, n, own].T for n, own in enumerate(slots)],
        "z": [z[:, q, own].T for q, own in enumerate(query_tokens(layout))],
    }  # fmt: skip


def _flow(reading, last, points):
    eta_y, eta_z = effective_rates(reading)
    data = flow(reading.classes, eta_y=eta_y, eta_z=eta_z, t=grid(last, points), rtol=1e-6, atol=1e-9, device="cpu")
    return data.assign(growth=(("t", "seq_class"), from_trajectory(data, reading.classes).measured_growth))


def _response(reading, last, points):
    """Up to where it is trusted; it has no loss, and the entropy is that of its attention."""
    eta_y, eta_z = effective_rates(reading)
    data = response(reading.classes, eta_y, eta_z, grid(last, points), stop=1.0, variables=("z", "attention", "growth"))
    data = data.isel(t=data.t.values <= data.attrs["trusted_until"])
    distinct = np.zeros(data.attention.shape[1:], dtype=bool)
    for n in range(reading.classes.n_classes):
        distinct[n, reading.classes.distinct(n)] = True
    entropy = masked_entropy(data.attention.values, distinct)
    return data.assign(entropy=(("t", "seq_class"), entropy), loss=("t", np.full(len(entropy), np.nan)))


def axis(name):
    """The rates of one side of the map."""
    page = BY_NAME[name].page
    assert page.low is not None
    assert page.high is not None
    return np.array([float(f"{rate:.3g}") for rate in np.geomspace(page.low, page.high, 9)])


def rate_map(reading):
    """The share of attention on common tokens at the last step, (9, 9)."""
    runs, last, classes = reading.runs, reading.settings.steps, reading.classes
    rest = {name: float(getattr(runs, name)[0]) for name in ("momentum", "weight_decay")}
    all_runs = run_grid(eta_y=axis("eta_y"), eta_z=axis("eta_z"), seed=int(runs.seed[0]), **rest)
    settings = replace(reading.settings, record=(last,), variables=("attention",))
    data = simulate(classes, all_runs, settings=settings, device="cpu")
    share = np.zeros(len(data.run))
    for n, p in enumerate(classes.p_class):
        tokens = np.setdiff1d(classes.support(n)[0], classes.distinct(n))
        share += p * data.attention.values[:, -1, n][:, tokens].sum(-1)
    return share.reshape(9, 9)
