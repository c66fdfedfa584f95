"""scansnap: a laboratory for attention training dynamics.

Implements, verifies and goes beyond *Scan and Snap: Understanding Training Dynamics and Token Composition in
1-layer Transformer* (Tian, Wang, Chen, Du, NeurIPS 2023). Names are imported on first use, so that
``import scansnap`` stays instant and torch is loaded only when something is simulated.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"  # the only place: pyproject.toml and --version take it from here

if TYPE_CHECKING:
    from scansnap import dial as dial
    from scansnap import measure as measure
    from scansnap import probe as probe
    from scansnap import rates as rates
    from scansnap import text as text
    from scansnap import theory as theory
    from scansnap.checks import InputError as InputError
    from scansnap.claims.claim import Claim as Claim
    from scansnap.claims.claim import Statement as Statement
    from scansnap.claims.evidence import Evidence as Evidence
    from scansnap.claims.registry import CHECKS as CHECKS
    from scansnap.claims.report import Report as Report
    from scansnap.claims.survey.run import survey as survey
    from scansnap.claims.verify import verify as verify
    from scansnap.classes import SequenceClasses as SequenceClasses
    from scansnap.classes.sampler import ClassSampler as ClassSampler
    from scansnap.dial.study import run_dial as run_dial
    from scansnap.dynamics.flow.integrate import flow as flow
    from scansnap.dynamics.norms import Norm as Norm
    from scansnap.dynamics.norms import register_norm as register_norm
    from scansnap.dynamics.optimizers import Optimizer as Optimizer
    from scansnap.dynamics.optimizers import Rule as Rule
    from scansnap.dynamics.optimizers import register_optimizer as register_optimizer
    from scansnap.dynamics.response.solve import response as response
    from scansnap.dynamics.settings import Settings as Settings
    from scansnap.dynamics.simulate import simulate as simulate
    from scansnap.dynamics.yz import ModelConfig as ModelConfig
    from scansnap.interrupt import Interrupted as Interrupted
    from scansnap.plots import plot as plot
    from scansnap.probe.probe import Probe as Probe
    from scansnap.rates.groups import describe_groups as describe_groups
    from scansnap.rates.groups import param_groups as param_groups
    from scansnap.results.trajectory import load as load
    from scansnap.results.trajectory import save as save
    from scansnap.runs import Runs as Runs
    from scansnap.runs import grid as grid
    from scansnap.sampling.mixture import MixtureSampler as MixtureSampler
    from scansnap.sampling.ordered import OrderedTokens as OrderedTokens
    from scansnap.sampling.sampler import Sampler as Sampler
    from scansnap.sampling.sampler import Sequences as Sequences

_HOME = {
    "InputError": "scansnap.checks",
    "Interrupted": "scansnap.interrupt",
    "SequenceClasses": "scansnap.classes",
    "run_dial": "scansnap.dial.study",
    "CHECKS": "scansnap.claims.registry",
    "Claim": "scansnap.claims.claim",
    "Evidence": "scansnap.claims.evidence",
    "Report": "scansnap.claims.report",
    "Statement": "scansnap.claims.claim",
    "survey": "scansnap.claims.survey.run",
    "verify": "scansnap.claims.verify",
    "flow": "scansnap.dynamics.flow.integrate",
    "response": "scansnap.dynamics.response.solve",
    "Norm": "scansnap.dynamics.norms",
    "register_norm": "scansnap.dynamics.norms",
    "Optimizer": "scansnap.dynamics.optimizers",
    "Rule": "scansnap.dynamics.optimizers",
    "register_optimizer": "scansnap.dynamics.optimizers",
    "Settings": "scansnap.dynamics.settings",
    "simulate": "scansnap.dynamics.simulate",
    "ModelConfig": "scansnap.dynamics.yz",
    "plot": "scansnap.plots",
    "Probe": "scansnap.probe.probe",
    "describe_groups": "scansnap.rates.groups",
    "param_groups": "scansnap.rates.groups",
    "Runs": "scansnap.runs",
    "grid": "scansnap.runs",
    "ClassSampler": "scansnap.classes.sampler",
    "MixtureSampler": "scansnap.sampling.mixture",
    "OrderedTokens": "scansnap.sampling.ordered",
    "Sampler": "scansnap.sampling.sampler",
    "Sequences": "scansnap.sampling.sampler",
    "load": "scansnap.results.trajectory",
    "save": "scansnap.results.trajectory",
}
_MODULES = ("dial", "measure", "probe", "rates", "text", "theory")

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"scansnap.{name}")
    else:
        raise AttributeError(f"module 'scansnap' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
