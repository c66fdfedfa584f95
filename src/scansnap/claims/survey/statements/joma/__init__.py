"""JoMA: attention integrates the value weights; with a nonlinear MLP it is first sparse, then dense again."""

from __future__ import annotations

from scansnap.claims.survey.finding import Source

JOMA = Source(
    "Tian, Wang, Zhang, Chen and Du 2023",
    "JoMA: Demystifying Multilayer Transformers via JOint Dynamics of MLP and Attention", "2310.00535", "abstract",
)  # fmt: skip
