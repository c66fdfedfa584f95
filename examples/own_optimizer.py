"""Your own optimiser: Lion (Chen et al., 2023), the sign of an interpolated average of gradients.

Run it: python examples/own_optimizer.py
"""

import scansnap as ss


def lion(table, d, moments, context):
    beta1, beta2 = context.optimizer.beta1, context.optimizer.beta2
    ahead = beta1 * moments["mean"] + (1 - beta1) * d
    table.add_(context.eta * ahead.sign())
    moments["mean"].mul_(beta2).add_(d, alpha=1 - beta2)


ss.register_optimizer("lion", ss.Rule(lion, moments=("mean",), decoupled=True))

if __name__ == "__main__":
    classes = ss.SequenceClasses.syn_small()
    runs = ss.grid(eta_y=0.02, eta_z=0.02, seed=range(3))
    for optimizer in ("sgd", "lion", {"y": "sgd", "z": "lion"}):
        data = ss.simulate(classes, runs, optimizer=optimizer, steps=200, record=[0, 200], device="cpu")
        loss, entropy = data.loss.mean("run"), data.entropy.mean(("run", "seq_class"))
        print(f"{optimizer}: loss {loss[0]:.3f} → {loss[-1]:.3f}, entropy {entropy[0]:.3f} → {entropy[-1]:.3f}")
