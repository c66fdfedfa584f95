"""A component of your own: sigmoid attention in the YZ model, beside softmax, at the same effective rates.

Run it: python examples/own_component.py
"""

import torch

import scansnap as ss


def sigmoid(logits, counts):  # each key for itself, as often as it counts; nothing makes the weights sum to 1
    return counts.exp() * torch.sigmoid(logits)


ss.dial.register_attention("sigmoid", sigmoid)
ss.dial.register_component(ss.dial.Component("sigmoid", "sigmoid attention", {"": {"attention": "sigmoid"}}))

if __name__ == "__main__":
    for component in ("yz", "sigmoid"):
        table = ss.run_dial(component, "single", "sgd", quick=True, device="cpu").table.set_index("observable")
        print(component, " ".join(f"{name} {row.value:.2f} {row.verdict}" for name, row in table.iterrows()
                             if row.verdict in ("holds", "fails", "undecided")))  # fmt: skip
