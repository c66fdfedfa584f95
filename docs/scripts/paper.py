"""Prints docs/theory.md as a paper: LaTeX from the Markdown, and a PDF where pdflatex is installed.

    python docs/scripts/paper.py --out out/paper        # make paper

The page is the only source of the text, so that page and PDF cannot disagree. It uses a small part of Markdown
(headings, paragraphs, formulas, tables, lists, pictures with a caption); other markup is an error, not lost text.
Debian: texlive-latex-recommended texlive-latex-extra texlive-fonts-recommended.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "theory.md"
INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\$(?P<math>[^$]+)\$|\[(?P<text>[^\]]+)\]\((?P<link>[^)]+)\)"
    r"|\*\*(?P<bold>.+?)\*\*|\*(?P<italic>(?:\$[^$]*\$|[^*$])+)\*"
)
SPECIAL = {c: f"\\{c}" for c in "#%&_{}$"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "∎": r"\hfill$\square$",
    "…": r"\ldots{}", "·": r"$\cdot$", "−": "$-$", "⁻": "$^-$", "∞": r"$\infty$", "“": "``", "”": "''",
} | {digit: f"$^{i}$" for i, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}  # fmt: skip
WIDE = 30  # characters of a table's cell that needs more than one line
HEAD = r"""% Made by docs/scripts/paper.py from docs/theory.md: change that page, not this file.
\documentclass[10pt]{article}
\usepackage[utf8]{inputenc}
\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
\usepackage[a4paper,margin=19mm,top=15mm,bottom=17mm]{geometry}
\usepackage{amsmath,amssymb,graphicx,booktabs,tabularx,array,enumitem,titlesec,caption,microtype}
\usepackage[hidelinks]{hyperref}
\titlespacing*{\section}{0pt}{1.4ex plus .4ex}{.7ex}
\titleformat*{\section}{\large\bfseries}
\captionsetup{font=small,labelformat=empty,skip=3pt}
\setlength{\parindent}{0pt}\setlength{\parskip}{.55ex plus .2ex}
\setlength{\textfloatsep}{8pt}\setlength{\intextsep}{6pt}
\setlist{nosep,leftmargin=1.4em}
\AtBeginDocument{\setlength{\abovedisplayskip}{4pt plus 2pt}\setlength{\belowdisplayskip}{4pt plus 2pt}}
\emergencystretch=2em
"""


class UnknownMarkupError(ValueError):
    """The page has markup that this script does not print."""


def escaped(text: str) -> str:
    """Plain text as LaTeX."""
    made = "".join(SPECIAL.get(c, c) for c in text)
    if left := re.findall(r"[^\x00-\x7f]", made):
        raise UnknownMarkupError(f"characters without a LaTeX form: {' '.join(sorted(set(left)))} in {text!r}")
    return made


def inline(text: str) -> str:
    """One paragraph's text as LaTeX."""
    made, end = [], 0
    for match in INLINE.finditer(text):
        made.append(escaped(text[end : match.start()]))
        end = match.end()
        kind = match.lastgroup if match["link"] is None else "link"
        if kind == "code":
            code = re.sub(r"([/.,(=]|\\_|::)", r"\1\\allowbreak{}", escaped(match["code"]))
            made.append(rf"\texttt{{\small {code.replace('--', '-{}-')}}}")
        elif kind == "math":
            made.append(f"${match['math']}$")
        elif kind == "link":
            shown = inline(match["text"])
            made.append(rf"\href{{{match['link']}}}{{{shown}}}" if match["link"].startswith("http") else shown)
        else:
            made.append(
                rf"\textbf{{{inline(match['bold'])}}}" if kind == "bold" else rf"\emph{{{inline(match['italic'])}}}"
            )
    return "".join([*made, escaped(text[end:])])


def table(lines: list[str]) -> str:
    """A Markdown table as a centred tabular; columns with long cells share the width."""
    code = re.compile(r"`[^`]*`|\$[^$]*\$")
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    if len({len(row) for row in rows}) > 1:
        raise UnknownMarkupError(f"rows of different length in the table {lines[0]}")
    head, body = rows[0], rows[2:]
    longest = [max(len(code.sub("xxxxxxxxxx", row[i])) for row in (head, *body)) for i in range(len(head))]
    wide = [length > WIDE for length in longest]
    spec = "".join(r">{\raggedright\arraybackslash}X" if w else "l" for w in wide)
    cells = [" & ".join(inline(cell) for cell in row) + r" \\" for row in (head, *body)]
    kind, width = ("tabularx", r"{\textwidth}") if any(wide) else ("tabular", "")
    inside = "\n".join([r"\toprule", cells[0], r"\midrule", *cells[1:], r"\bottomrule"])
    return f"\\begin{{center}}\\small\n\\begin{{{kind}}}{width}{{{spec}}}\n{inside}\n\\end{{{kind}}}\n\\end{{center}}"


def blocks(text: str) -> Iterator[list[str]]:
    """Runs of lines between empty lines."""
    for block in re.split(r"\n\s*\n", text.strip()):
        yield block.split("\n")


def latex(page: str, pictures: str = ".") -> str:
    """The whole document; ``pictures`` is the folder of docs/ seen from the LaTeX file."""
    made: list[str] = []
    title, picture, abstract = "", "", False
    for lines in blocks(page):
        first, text = lines[0], " ".join(line.strip() for line in lines)
        if picture:
            if not re.fullmatch(r"\*.+\*", text):
                raise UnknownMarkupError(f"the picture {picture} has no caption in italics below it")
            made.append(f"\\begin{{figure}}[t]\\centering\n\\includegraphics[width=\\textwidth]{{{picture}}}\n"
                        f"\\caption{{{inline(text[1:-1])}}}\n\\end{{figure}}")  # fmt: skip
            picture = ""
        elif heading := re.fullmatch(r"(#+) (.+)", first):
            if len(heading[1]) == 1:
                title, abstract = inline(heading[2]), True
            else:
                made.append(f"\\section{{{inline(heading[2])}}}" if len(heading[1]) == 2 else
                            f"\\subsection*{{{inline(heading[2])}}}")  # fmt: skip
        elif shown := re.fullmatch(r"!\[[^\]]*\]\(([^)]+)\.svg\)", text):
            picture = f"{shown[1]}.pdf"
        elif first == "$$":
            made.append("\\[\n" + "\n".join(lines[1:-1]) + "\n\\]")
        elif first.startswith("|"):
            made.append(table(lines))
        elif first.startswith("- "):
            items = [inline(" ".join(item.split())) for item in re.split(r"(?:^|\n)- ", "\n".join(lines))[1:]]
            made.append("\\begin{itemize}\n" + "\n".join(f"\\item {item}" for item in items) + "\n\\end{itemize}")
        elif re.match(r"```|>|\d+\. |<|!\[|    ", first):
            raise UnknownMarkupError(f"no LaTeX for {first!r}")
        elif abstract:
            made.append(f"\\begin{{abstract}}\\noindent\n{inline(text)}\n\\end{{abstract}}")
            abstract = False
        else:
            made.append(inline(text))
    begin = (
        f"\\graphicspath{{{{{pictures}/}}}}\n\\title{{\\vspace*{{-15mm}}\\Large\\bfseries {title}\\vspace*{{-3mm}}}}\n"
    )
    begin += "\\author{The scansnap project}\n\\date{\\vspace*{-9mm}}\n"
    return HEAD + begin + "\\begin{document}\n\\maketitle\n\n" + "\n\n".join(made) + "\n\n\\end{document}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/paper"), help="folder of theory.tex and theory.pdf")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    source = out / "theory.tex"
    source.write_text(latex(PAGE.read_text(encoding="utf-8"), os.path.relpath(DOCS, out)), encoding="utf-8")
    print(source)
    if not shutil.which("pdflatex"):
        print("NO TEX: pdflatex is not installed, so theory.pdf is not built. Debian: texlive-latex-extra, "
              "texlive-latex-recommended and texlive-fonts-recommended")  # fmt: skip
        return
    for _ in range(2):  # the second pass knows the labels
        run = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", source.name],
                             cwd=out, capture_output=True, check=False)  # fmt: skip
        if run.returncode:
            log = run.stdout.decode("utf-8", "replace")
            sys.exit(f"pdflatex failed:\n{log[-1500:]}\nAll of it is in {source.with_suffix('.log')}")
    print(source.with_suffix(".pdf"))


if __name__ == "__main__":
    main()
