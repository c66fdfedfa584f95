"""Cost against runs, steps, batch, support and T: prints a Markdown table, draws benchmarks/scaling.png.

python benchmarks/scaling.py [--device cuda]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scansnap.bench import scaling
from scansnap.plots.style import SERIES, save_figure, styled


def draw(lines: list[scaling.Line], path: Path) -> None:
    """One panel for each axis; a grey line shows what exact proportionality would be."""
    with styled(11, 2.6) as figure:
        for ax, line, colour in zip(figure.subplots(1, len(lines), sharey=True), lines, SERIES, strict=False):
            ax.loglog(line.values, line.seconds, "o-", color=colour, markersize=4)
            if line.axis != "context":
                ax.loglog(line.values, line.seconds[-1] * line.values / line.values[-1], color="0.75", zorder=0)
            ax.set(xlabel={"context": "length T", "support": "tokens per class"}.get(line.axis, line.axis))
            ax.set_title(rf"exponent {line.exponent:.2f}" if line.axis != "context" else "no growth with T")
            ax.set_xticks(line.values[[0, -1]], [f"{value:,}" for value in line.values[[0, -1]]])
            ax.set_yticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
            ax.minorticks_off()
        figure.axes[0].set_ylabel("seconds")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    scaling.measure("runs", device, repeats=1)  # warm-up
    lines = [scaling.measure(axis, device) for axis in scaling.AXES]
    print("| axis | " + " | ".join(f"{i + 1}" for i in range(6)) + " | exponent |\n|---|" + "---|" * 7)
    for line in lines:
        cells = [f"{v:,}: {s:.3f} s" for v, s in zip(line.values, line.seconds, strict=True)]
        cells += [""] * (6 - len(cells))
        print(f"| {line.axis} | " + " | ".join(cells) + f" | {line.exponent:.2f} |")
    draw(lines, Path(__file__).with_name("scaling.png"))


if __name__ == "__main__":
    main()
