"""Closed forms for given rates, classes and vocabulary: what the paper predicts, and what holds in its place.

The paper's: closed_form, expansions, token_growth, and modified (its proof).

Ours (``docs/theory.md``, ``docs/derivations.md``), for one query and equal overlaps: frozen, drive, memory, crossover,
late, momentum; for any classes: class_drive, fates, drift. Numbers in, numbers out.

Every function broadcasts over its arguments and returns a float when all of them are scalars. Notation:

    t, s         time in steps of batch size 1; s = t/K visits of one class
    u            the logit gap M h, which is a clock, too
    eta_y, eta_z learning rates of Y (the decoder) and of Z (attention)
    overlap      ρ, the cosine between the f_n of two classes; f_n = c_n/‖c_n‖, c_n the attention of class n
    form         ``leading`` order in 1/M, or ``exact``
"""

from scansnap.theory.class_drive import ClassDrive, class_drive
from scansnap.theory.closed_form import gamma, gamma_integral, h, h_recursion, u
from scansnap.theory.crossover import crossover, crossover_tokens, decoder_slope
from scansnap.theory.drift import SampledFlow, drift_tokens, fall_below, sampling_push
from scansnap.theory.drive import (
    beta,
    beta_rate,
    drive,
    drive_rate,
    growth_drive,
    growth_drive_early,
    growth_drive_late,
)
from scansnap.theory.expansions import gamma_early, gamma_late, growth_early, growth_late, snap_delta, t_scan, t_snap
from scansnap.theory.fates import held_speed, held_speed_one_common, memory_by_token, rise_time, token_push
from scansnap.theory.frozen import FrozenDecoder, frozen_decoder
from scansnap.theory.late import late_exponent, late_overlap
from scansnap.theory.memory import (
    TokenMemory,
    memory_early,
    memory_gain,
    memory_late,
    memory_speed,
    memory_tokens,
    u_star,
)
from scansnap.theory.modified import (
    ModifiedDecoder,
    modified_decoder,
    overlap_complement,
    step_lead,
    visits_at,
    visits_to_error,
)
from scansnap.theory.momentum import momentum_gap, momentum_growth, momentum_lag
from scansnap.theory.token_growth import chi, growth, relative_gain

__all__ = [
    "ClassDrive",
    "FrozenDecoder",
    "ModifiedDecoder",
    "SampledFlow",
    "TokenMemory",
    "beta",
    "beta_rate",
    "chi",
    "class_drive",
    "crossover",
    "crossover_tokens",
    "decoder_slope",
    "drift_tokens",
    "drive",
    "drive_rate",
    "fall_below",
    "frozen_decoder",
    "gamma",
    "gamma_early",
    "gamma_integral",
    "gamma_late",
    "growth",
    "growth_drive",
    "growth_drive_early",
    "growth_drive_late",
    "growth_early",
    "growth_late",
    "h",
    "h_recursion",
    "held_speed",
    "held_speed_one_common",
    "late_exponent",
    "late_overlap",
    "memory_by_token",
    "memory_early",
    "memory_gain",
    "memory_late",
    "memory_speed",
    "memory_tokens",
    "modified_decoder",
    "momentum_gap",
    "momentum_growth",
    "momentum_lag",
    "overlap_complement",
    "relative_gain",
    "rise_time",
    "sampling_push",
    "snap_delta",
    "step_lead",
    "t_scan",
    "t_snap",
    "token_push",
    "u",
    "u_star",
    "visits_at",
    "visits_to_error",
]
