"""Your own norm: L4, f = v/‖v‖₄, in SGD and in the T → ∞ flow, which SGD tends to in proportion to its rate.

Run it: python examples/own_norm.py
"""

import math

import scansnap as ss


def size(v, lift):  # lift: what stands at each token; v itself here, another vector in windows of text
    return (v * lift(v) ** 3).sum(-1, keepdim=True) ** 0.25


def forward(v, lift):
    return v / size(v, lift)


def backward(g, v, f, lift):  # ∂‖v‖₄/∂v = f³
    return (g - lift(f) ** 3 * (f * g).sum(-1, keepdim=True)) / size(v, lift)


ss.register_norm("l4", ss.Norm(forward, backward))

if __name__ == "__main__":
    classes, end = ss.SequenceClasses.syn_small(), 20.0  # η_Y t
    exact = ss.flow(classes, eta_y=1.0, eta_z=0.5, t=[end], norm="l4", rtol=1e-10).attention[0]
    for rate in (0.1, 0.05):
        n = round(end / rate)
        data = ss.simulate(classes, eta_y=rate, eta_z=0.5 * rate, steps=n, record=[n], norm="l4", context=math.inf,
                           batch_size=None, dtype="float64", device="cpu")  # fmt: skip
        print(f"rate {rate}: attention is off the flow by {abs(data.attention[0, 0] - exact).max():.3e}")
