"""The file: every module in one script, nothing that is fetched, at most two megabytes."""

import json
import re
import shutil
import subprocess

import pytest

from scansnap.checks import InputError
from scansnap.explorer.build import catalogue, explorer_html
from scansnap.explorer.bundle import bundle
from scansnap.explorer.controls import CONTROLS
from scansnap.explorer.page import STATIC, as_json, document

SCRIPTS = sorted((STATIC / "js").rglob("*.js"))
node = pytest.mark.skipif(shutil.which("node") is None, reason="NO NODE: bundles are not run")


def write(folder, **modules):
    for name, source in modules.items():
        path = folder / f"{name.replace('__', '/')}.js"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return folder


def run(script):
    return subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout.strip()


# --- bundles ---------------------------------------------------------------------------------------------------------


@node
def test_modules_of_the_same_name_and_with_the_same_names_inside_stay_apart(tmp_path):
    write(tmp_path, main='import { a as own } from "./one/x.js";\nimport * as two from "./two/x.js";\n'
          'import { total } from "./sum.js";\nconsole.log(own(), two.b(), total);\n',
          one__x='const r = 1;\nexport const a = () => r;\n',
          two__x='import {\n  a,\n} from "../one/x.js";\nconst r = 2;\nexport function b() { return a() + r; }\n',
          sum='const value = 9;\nexport { value as total };\n')  # fmt: skip
    assert run(bundle(tmp_path, "main")) == "1 3 9"


@node
def test_what_changes_is_seen_through_the_module_and_what_is_imported_later_is_there(tmp_path):
    write(tmp_path, main='import * as count from "./count.js";\ncount.up();\nconsole.log(count.n);\n'
          '(async () => { const { f } = await import("./later.js"); console.log(f()); })();\n',
          count="export let n = 0;\nexport function up() { n += 1; }\n",
          later='import { n } from "./count.js";\nexport const { f } = { f: () => typeof n };\n')  # fmt: skip
    assert run(bundle(tmp_path, "main")).split() == ["1", "number"]


@pytest.mark.parametrize("source", [
    'import { c } from "./one.js";\n', 'import x from "./one.js";\n', "export default 1;\n",
    'export { a } from "./one.js";\n',
    'import { main } from "./two.js";\nexport const x = 1;\n'])  # fmt: skip
def test_what_a_bundle_cannot_take_is_refused(tmp_path, source):
    write(
        tmp_path,
        main=source,
        one="export const a = 1;\n",
        two='import { x } from "./main.js";\nexport const main = x;\n',
    )
    with pytest.raises(InputError):
        bundle(tmp_path, "main")


# --- pages -----------------------------------------------------------------------------------------------------------


def data_of(page, name):
    (text,) = re.findall(rf'<script type="application/json" id="data-{name}">(.*?)</script>', page, re.S)
    assert "<" not in text
    return json.loads(text)


def test_the_explorer_is_one_file_that_fetches_nothing():
    page = explorer_html()
    assert len(page.encode()) <= 2 * 10**6
    shown = re.sub(r"<script\b.*?</script>", "", page, flags=re.S)
    assert not re.search(r'\b(?:src|href)="(?!data:|#)(?!probe")', shown)
    assert not re.search(r"url\((?!data:)", shown)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page.split("</head>")[0])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["worker-src"] == "blob:"
    assert "connect-src" not in rules
    assert re.fullmatch(r"'sha256-[\w+/]+='", rules["script-src"])
    assert len(re.findall("^<script", page, re.M)) == page.count("</script>") == 5


def test_only_the_page_of_the_lab_may_ask_its_own_server():
    assert "connect-src 'self'" in document("index.html", {}, connect=True)


def test_a_setting_is_declared_once():
    page = explorer_html()
    said = data_of(page, "catalogue")
    assert said == json.loads(as_json(catalogue()))
    assert [control["name"] for control in said["controls"]] == [control.name for control in CONTROLS]  # type: ignore[index]


def test_words_of_a_deck_cannot_end_its_element():
    hostile = {"name": "x", "title": "</script><img onerror>", "beat": [], "author": "<!--<script>&"}
    said = data_of(explorer_html([hostile], lecture=True), "catalogue")
    assert said["decks"][0] == hostile  # type: ignore[index]
    assert said["lecture"] is True  # type: ignore[index]


def test_attention_is_drawn_in_one_place():
    painters = [path.stem for path in SCRIPTS if re.search(r"\bheatmap\(", path.read_text(encoding="utf-8"))]
    assert painters == ["attention"]


def test_the_film_is_one_file_with_the_pages_own_renderer():
    film = data_of(explorer_html(), "film")
    assert isinstance(film, str)
    assert "class AttentionPainter" in film
    assert film.count('"__FILM__"') == 1
    assert film.count("<script") == film.count("</script>") == 2
