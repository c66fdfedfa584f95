"""Which tokens rise and fall, and in which order they drop out (Theorems 2 and 3 of the paper, Section 5).

All functions take ``data``, a trajectory of ``simulate`` or ``flow``, and its ``classes``. With ``local`` a token is
distinct if no other class *of the same query* has it, which is what matters with a residual connection; without, if no
other class has it.

Results are tidy: one entry along ``pair`` for each class and each token of its context, with the coordinates
`seq_class`, ``token``, ``query``, ``kind`` (distinct or common) and ``p_context``. ``.to_dataframe()`` makes a table,
``result.isel(pair=result.kind == "common")`` selects, and ``.set_index(pair=["seq_class", "token"]).unstack()`` gives
the class × token grid.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from scansnap.checks import InputError, check_float
from scansnap.classes import SequenceClasses
from scansnap.measure.ranks import rank_correlation


def fates(data: xr.Dataset, classes: SequenceClasses, *, local: bool = False) -> xr.Dataset:
    """The change of every context token between the first and the last recorded time (Theorem 2).

    Theory: the logit of every distinct token rises, ż_ml = η_Z p_n f_nl² ξ_n > 0. A single common token falls; of
    several, single ones may rise, but by the invariant Σ_l ż_ml = 0 their sum falls.

    Variables, along (run,) ``pair``:

    z_change          z(last) − z(first) of the class's query and the token
    rises             whether that is above 0
    rise_share        share of the recorded intervals in which z rises; NaN if it never moves
    attention_start   c_n at the first recorded time
    attention_change  c_n(last) − c_n(first)

    Classes with the same query share z, so a token common to them appears once for each with the same z_change and its
    own attention_change. Record step 0 (or t = 0) to make "first" mean the start of training. Noise moves single
    intervals: rise_share is near 1 only for smooth trajectories or intervals that are long enough.

    Examples
    --------
    >>> classes = ss.SequenceClasses.syn_small()
    >>> data = ss.flow(classes, eta_y=1.0, eta_z=0.1, t=np.geomspace(0.1, 1000, 30))
    >>> table = fates(data, classes)
    >>> bool(table.rises[table.kind == "distinct"].all())
    True
    """
    time = time_dim(data, "z", "attention")
    check_classes(data, classes)
    pairs = context_pairs(classes, local)
    z = _by_query(data["z"], pairs)
    c = data["attention"].isel(seq_class=pairs["seq_class"].variable, token=pairs["token"].variable)
    z, c = (_relabelled(array, pairs) for array in (z, c))
    moves = z.diff(time)
    moved = (moves != 0).sum(time)
    change = z.isel({time: -1}, drop=True) - z.isel({time: 0}, drop=True)
    start = c.isel({time: 0}, drop=True)
    return xr.Dataset(
        {
            "z_change": change.assign_attrs(long_name="z(last) − z(first)"),
            "rises": (change > 0).assign_attrs(long_name="whether z rises on the whole"),
            "rise_share": ((moves > 0).sum(time) / moved.where(moved > 0)).assign_attrs(
                long_name="share of the intervals in which z moves that it rises in"
            ),
            "attention_start": start.assign_attrs(long_name="attention at the first recorded time"),
            "attention_change": (c.isel({time: -1}, drop=True) - start).assign_attrs(long_name="c(last) − c(first)"),
        }
    ).transpose(..., "pair")


def scan_order(data: xr.Dataset, classes: SequenceClasses, fraction: float = 0.5, *, local: bool = False) -> xr.Dataset:
    """When each distinct token drops out of its class's attention: the order of token scanning (Theorem 3).

    The winner of a class is its most attended distinct token at the last recorded time. A token drops when

        [c_l(t)/c_winner(t)] / [c_l(0)/c_winner(0)]  =  e^{Δz_l − Δz_winner}

    falls below ``fraction`` and stays there to the end of the record. By Theorem 3 the relative gain
    r = c_winner²/c_l² − 1 of the winner grows as r(0) χ(t), so a token that starts with a smaller P(l|n) is left
    behind earlier: tokens are scanned from the rare to the frequent, and snapping stops the scan before the
    last have dropped.

    Variables, along (run,) ``pair`` (distinct tokens only): ``drop_time``, NaN for tokens that never drop, and
    ``winner``. Between two recorded times the logarithm of the ratio is taken as linear in ln t (in t from t = 0).

    Examples
    --------
    >>> classes = ss.SequenceClasses.syn_small()
    >>> data = ss.flow(classes, eta_y=1.0, eta_z=0.1, t=np.geomspace(0.1, 1000, 30))
    >>> int(scan_order(data, classes).winner.sum())
    2
    """
    fraction = check_float("fraction", fraction, above=0, below=1)
    time = time_dim(data, "attention")
    check_classes(data, classes)
    pairs = context_pairs(classes, local)
    pairs = pairs.isel(pair=pairs["kind"].values == "distinct")
    c = data["attention"].isel(seq_class=pairs["seq_class"].variable, token=pairs["token"].variable)
    c = _relabelled(c, pairs).transpose(..., time, "pair")
    log_c = np.log(np.maximum(c.values, np.finfo(c.dtype).tiny), dtype=np.float64)
    drop, winner = np.full(c.isel({time: 0}).shape, np.nan), np.zeros(c.isel({time: 0}).shape, dtype=bool)
    for n in np.unique(pairs["seq_class"]):
        at = np.flatnonzero(pairs["seq_class"].values == n)
        best = at[log_c[..., -1, at].argmax(-1)]  # (run,)
        winner[..., at] = at == best[..., None]
        relative = log_c[..., at] - np.take_along_axis(log_c, best[..., None, None], axis=-1)
        drop[..., at] = _last_fall(data[time].values, relative - relative[..., :1, :], np.log(fraction))
    like = c.isel({time: 0}, drop=True)
    return xr.Dataset(
        {
            "drop_time": like.copy(data=drop).assign_attrs(
                long_name=f"{time} at which c_l/c_winner falls below {fraction:g} of its first value for good"
            ),
            "winner": like.copy(data=winner).assign_attrs(long_name="most attended distinct token at the end"),
        },
        attrs={"fraction": fraction},
    )


def scan_rank_correlation(
    data: xr.Dataset, classes: SequenceClasses, fraction: float = 0.5, *, local: bool = False
) -> xr.DataArray:
    """Spearman correlation, by seq_class, of the distinct tokens' drop times with P(l|n): +1 if rare ones drop first.

    Drop times as in `scan_order`. Tokens that never drop, the winner among them, share the last rank
    (+∞), and equal values share their mean rank: tokens of equal P neither help nor hurt, and +1 itself is out of
    reach when several tokens of different P stay (0.89 for 6 of 10). A fraction nearer to 1 lets more of them
    drop where attention froze early. NaN for classes without an order: fewer than 3 distinct tokens, equal P for all,
    or none that drops.

    Examples
    --------
    >>> classes = ss.SequenceClasses.syn_small()
    >>> data = ss.flow(classes, eta_y=1.0, eta_z=0.1, t=np.geomspace(0.1, 1000, 30))
    >>> scan_rank_correlation(data, classes, 0.9).dims
    ('seq_class',)
    """
    order = scan_order(data, classes, fraction, local=local)
    times = np.nan_to_num(order["drop_time"].values, nan=np.inf)
    out = np.full((*times.shape[:-1], classes.n_classes), np.nan)
    for n in range(classes.n_classes):
        at = order["seq_class"].values == n
        if at.sum() >= 3:
            rank = rankdata(times[..., at], axis=-1)  # which makes ∞ a number
            p = np.round(order["p_context"].values[at], 12)  # given to rounding: tokens of one weight must tie
            rows = rank.reshape(-1, rank.shape[-1])
            out[..., n] = rank_correlation(rows, np.broadcast_to(p, rows.shape)).reshape(rank.shape[:-1])
    dims = [dim for dim in order["drop_time"].dims if dim != "pair"]
    coords = {name: value for name, value in order.coords.items() if "pair" not in value.dims}
    return xr.DataArray(
        out,
        dims=[*dims, "seq_class"],
        coords=coords | {"seq_class": np.arange(classes.n_classes)},
        name="scan_rank_correlation",
        attrs={"long_name": "Spearman correlation of drop time and P(l|n)", "fraction": order.attrs["fraction"]},
    )


def context_pairs(classes: SequenceClasses, local: bool = False) -> xr.Dataset:
    """Every class with every token of its context, as coordinates along ``pair``."""
    support = [classes.support(n) for n in range(classes.n_classes)]
    sizes = [len(tokens) for tokens, _ in support]
    distinct = [np.isin(tokens, classes.distinct(n, local)) for n, (tokens, _) in enumerate(support)]
    number = np.repeat(np.arange(classes.n_classes), sizes)
    return xr.Dataset(
        coords={
            "seq_class": ("pair", number),
            "token": ("pair", np.concatenate([tokens for tokens, _ in support])),
            "query": ("pair", classes.query[number]),
            "kind": ("pair", np.where(np.concatenate(distinct), "distinct", "common")),
            "p_context": ("pair", np.concatenate([probs for _, probs in support])),
        }
    )


def time_dim(data: xr.Dataset, *variables: str) -> str:
    """``step`` or ``t``, whichever the trajectory runs along; refuses one that lacks a variable or times."""
    if not isinstance(data, xr.Dataset):
        raise InputError("data", data, "a trajectory: the Dataset that simulate or flow returns")
    for name in variables:
        if name not in data:
            raise InputError("data", f"without {name}", f"a trajectory with the variable {name}", "add it to variables")
    dims = [dim for dim in ("step", "t") if dim in data[variables[0]].dims]
    if len(dims) != 1:
        raise InputError("data", f"along {tuple(data[variables[0]].dims)}", "a trajectory along step or t")
    times = data[dims[0]].values
    if len(times) < 2:
        raise InputError(dims[0], f"{len(times)} recorded values", "at least 2 recorded values")
    if not (np.diff(times) > 0).all() or times[0] < 0:
        raise InputError(dims[0], times, "strictly ascending values ≥ 0")
    return dims[0]


def check_classes(data: xr.Dataset, classes: SequenceClasses) -> None:
    """Refuse classes that are not those of the trajectory, as far as shapes tell."""
    if not isinstance(classes, SequenceClasses):
        raise InputError("classes", classes, "a SequenceClasses object")
    sizes = data["attention"].sizes
    if "seq_class" not in sizes or "token" not in sizes:
        raise InputError("attention", f"dims {tuple(sizes)}", "dims with seq_class and token")
    if (sizes["seq_class"], sizes["token"]) != (classes.n_classes, classes.vocab_size):
        raise InputError(
            "classes",
            f"{classes.n_classes} classes of {classes.vocab_size} tokens",
            f"those of the trajectory: {sizes['seq_class']} classes of {sizes['token']} tokens",
        )


def _by_query(z: xr.DataArray, pairs: xr.Dataset) -> xr.DataArray:
    """z at each pair's query and token."""
    queries = z["query"].values
    missing = np.setdiff1d(pairs["query"], queries)
    if len(missing):
        raise InputError("classes", f"with the query {missing[0]}", f"those of the trajectory: queries {queries}")
    row = np.argsort(queries)[np.searchsorted(queries, pairs["query"].values, sorter=np.argsort(queries))]
    return z.isel({"query": xr.Variable("pair", row), "token": pairs["token"].variable})


def _relabelled(array: xr.DataArray, pairs: xr.Dataset) -> xr.DataArray:
    pair_coords = [name for name, value in array.coords.items() if "pair" in value.dims]
    return array.drop_vars(pair_coords).assign_coords(pairs.coords)


def _last_fall(times: np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """Where curves (…, time, pair) go below the level for good; NaN where they end above it."""
    below = values < level
    above_until = values.shape[-2] - np.argmax(~below[..., ::-1, :], axis=-2) - 1  # the last record not below
    i = np.minimum(above_until, len(times) - 2)
    y0, y1 = (np.take_along_axis(values, j[..., None, :], axis=-2)[..., 0, :] for j in (i, i + 1))
    falls = below[..., -1, :]
    part = np.where(falls, y0 - level, 0.0) / np.where(falls, y0 - y1, 1.0)  # in [0, 1)
    t0, t1 = times[i].astype(np.float64), times[i + 1].astype(np.float64)
    log_t0 = np.log(np.where(t0 > 0, t0, 1.0))
    crossing = np.where(t0 > 0, np.exp(log_t0 + part * (np.log(t1) - log_t0)), t0 + part * (t1 - t0))
    return np.where(falls, crossing, np.nan)
