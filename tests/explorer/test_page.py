"""The page's own files: types made from the models, one renderer for page and film, plotly by its public functions."""

import json
import re
from pathlib import Path

import pytest
from page_types import FILE, types

import scansnap
from scansnap.checks import InputError
from scansnap.explorer.pages.export import bundle, film_html

STATIC = Path(scansnap.__file__).parent / "explorer" / "static"
SCRIPTS = sorted((STATIC / "js").rglob("*.js"))


def test_the_types_of_the_page_are_those_of_the_messages() -> None:
    assert FILE.read_text(encoding="utf-8") == types(), "make them anew: python tests/explorer/page_types.py"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_private_field_of_plotly_is_read(path: Path) -> None:
    assert re.findall(r"\._\w+", path.read_text(encoding="utf-8")) == []


def test_attention_is_drawn_in_one_place() -> None:
    painters = [path.stem for path in SCRIPTS if re.search(r"\bheatmap\(", path.read_text(encoding="utf-8"))]
    assert painters == ["attention"]
    users = [path.stem for path in SCRIPTS if '/attention.js"' in path.read_text(encoding="utf-8")]
    assert users == ["player", "show", "stage"]


def test_the_film_is_one_file_with_the_pages_own_renderer() -> None:
    page = film_html(STATIC, {"</script><img onerror>": "<!--<script>&"})
    assert "class AttentionPainter" in page
    assert (STATIC / "js" / "draw" / "attention.js").read_text(encoding="utf-8").split("heatmap(")[-1][:500] in page
    data = re.findall(r'<script type="application/json" id="film">(.*?)</script>', page, re.S)
    assert [json.loads(text) for text in data] == [{"</script><img onerror>": "<!--<script>&"}]
    assert not set(data[0]) & set("<>&"), "nothing that a visitor wrote can be an element"
    assert page.count("</script>") == page.count("<script") == 2
    assert not re.search(r'^(import|export)\b|src="|https?://(?!www\.w3\.org/2000/svg)', page, re.M)


def test_a_bundle_keeps_the_names_of_its_modules_apart(tmp_path: Path) -> None:
    (tmp_path / "one.js").write_text("const r = 1;\nexport const a = () => r;\n")
    (tmp_path / "two.js").write_text('import { a } from "./one.js";\nconst r = 2;\nexport const b = () => a() + r;\n')
    (tmp_path / "main.js").write_text('import { a } from "./one.js";\nimport { b } from "./two.js";\na(b());\n')
    made = bundle(tmp_path, "main")
    assert made.index("module_one = ") < made.index("module_two = ") < made.index("module_main = ")
    assert made.count("module_one = ") == 1
    assert "const { a } = module_one;" in made


NO_NAME = "const, function or class"


@pytest.mark.parametrize(("source", "said"), [
    ('import { c } from "./one.js";\n', "one of a of one.js"), ('import * as x from "./one.js";\n', "import of names"),
    ("export let x = 1;\n", NO_NAME), ("export default 1;\n", NO_NAME)])  # fmt: skip
def test_what_a_bundle_cannot_take_is_said(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "one.js").write_text("export const a = 1;\n")
    (tmp_path / "main.js").write_text(source)
    with pytest.raises(InputError, match=said):
        bundle(tmp_path, "main")
