"""What is predicted of attention, as evidence that a claim can be judged on just as on the exact flow.

    response    linear response of the flow (:func:`scansnap.dynamics.response.solve.response`), any classes
    memory      its closed form in the symmetric family, exact frozen decoder (:mod:`scansnap.theory.memory`)
    wrong ε     the same with η_Z/η_Y three times too large: a control
    no memory   the drive alone, z = ∫ of what frozen attention feels (:mod:`scansnap.theory.drive`): a control

Nothing is fitted: the classes, the rates and the times go in.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.interpolate import CubicSpline

from scansnap import theory
from scansnap.checks.arrays import FloatArray
from scansnap.claims.evidence import Evidence
from scansnap.claims.maps import MapPoint
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import attention_of

WRONG = 3.0  # times η_Z/η_Y


def memory(point: MapPoint, t: FloatArray, *, wrong: float = 1.0) -> FloatArray:
    """(n, 1, M) z by the memory equation with v̄; ``wrong`` is a factor on η_Z/η_Y."""
    f = _distinct(point)
    k, m, eta_y = point.n_classes, point.vocab_size, point.eta_y
    clock = theory.frozen_decoder(t, eta_y=eta_y, n_classes=k, vocab_size=m, overlap=point.overlap).clock
    found = theory.memory_tokens(
        clock, eta_y=eta_y, eta_z=wrong * eta_y / point.ratio, n_classes=k, vocab_size=m, f_distinct=f, form="exact"
    )
    return _spread(point, found.z)


def no_memory(point: MapPoint, t: FloatArray) -> FloatArray:
    """(n, 1, M) z of the drive alone: f_l² B of a distinct token, −K(1 − ρ)B of the common one."""
    growth = theory.growth_drive(
        t, eta_y=point.eta_y, eta_z=point.eta_y / point.ratio, n_classes=point.n_classes, vocab_size=point.vocab_size,
        overlap=point.overlap, form="exact",
    )  # fmt: skip
    share = np.append(_distinct(point) ** 2, -point.n_classes * (1 - point.overlap))
    return _spread(point, np.asarray(growth)[:, None] * share)


@np.errstate(all="ignore")  # a response beyond its range is judged as it is: no claim holds on what is not a number
def along(classes: SequenceClasses, eta_y: float, eta_z: float, t: FloatArray, z: FloatArray) -> Evidence:
    """The evidence of a path z (n, Q, M) from 0 at t[0] = 0: attention by its definition, ż by a spline over ln t.

    Of g only what a claim on distinct tokens sees is known: g_l = ż_l/(η_Z p_n f_l) there, and on common tokens any g
    that leaves fᵀg = 0, which makes γι_n − f_nᵀg_n of it the ξ_n = Σ ż_l/(η_Z p_n Σ f_l²) of the distinct tokens.
    """
    rate = np.zeros_like(z)
    moves = z.any((0, 1))  # of M tokens, a few
    rate[1:, :, moves] = CubicSpline(np.log(t[1:]), z[1:, :, moves])(np.log(t[1:]), 1) / t[1:, None, None]
    row = np.searchsorted(classes.queries, classes.query)
    p = classes.p_context
    c = attention_of(p, z[:, row])
    f = c / np.linalg.norm(c, axis=-1, keepdims=True)
    g = np.zeros_like(f)
    for n in range(classes.n_classes):
        own, common = classes.distinct(n), classes.common_of(n)
        g[:, n, own] = rate[:, row[n]][:, own] / (eta_z * classes.p_class[n] * f[:, n, own])
        owed = (f[:, n] * g[:, n]).sum(-1, keepdims=True) / (f[:, n, common] ** 2).sum(-1, keepdims=True)
        g[:, n, common] = -owed * f[:, n, common]
    return Evidence(classes, eta_y, eta_z, "flow", math.inf, t, z, c, g, None)


def _distinct(point: MapPoint) -> FloatArray:
    """f_l of the distinct tokens of a class at the start; the same in every class."""
    classes = point.classes()
    p = classes.p_context[0]
    return np.asarray(p[classes.distinct(0)] / np.linalg.norm(p))


def _spread(point: MapPoint, z: FloatArray) -> FloatArray:
    """(n, 1, M) from those of a class's distinct tokens and, last, of the common one."""
    classes = point.classes()
    full = np.zeros((len(z), 1, classes.vocab_size))
    for n in range(classes.n_classes):
        full[:, 0, classes.distinct(n)] = z[:, :-1]
    full[:, 0, classes.common[0]] = z[:, -1]
    return full
