"""The newcomer's test finds the README's lines, runs them where nothing is, and says which one failed."""

import subprocess
from pathlib import Path

import pytest

from repository_scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture
def newcomer():
    return load_script("packaging/newcomer.py")


@pytest.fixture
def repository(tmp_path, newcomer, monkeypatch):
    """Commits a README (and no more) as the repository that is cloned; gives the empty folder to clone into."""

    def commit(readme):
        here = tmp_path / "here"
        here.mkdir()
        (here / "README.md").write_text(readme)
        (here / "Makefile").write_text(
            "install:\n\tmkdir -p .venv/bin && ln -s `command -v python3` .venv/bin/python\n"
        )
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
            subprocess.run([*git, *words], cwd=here, check=True)
        monkeypatch.setattr(newcomer, "HERE", here)
        return tmp_path / "there"

    return commit


def test_it_finds_the_lines_of_the_readme(newcomer):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = list(newcomer.snippets(page))
    assert [one.text for one in found if one.language == "sh"] == list(newcomer.LONG)
    lines = page.splitlines()
    for one in found:
        assert lines[one.line - 1].startswith(one.text.splitlines()[0])
    commands = [command for _, command in newcomer.findings(page)]
    assert any(command.startswith("python examples/random_settings.py scan") for command in commands)
    assert "scansnap verify --preset textbook --eta-y 0.9 --eta-z 0.02" in commands
    assert not any("probe" in command for command in commands)  # needs a GPU


def test_a_large_number_of_a_finding_must_be_printed(newcomer):
    sentence = "0 of 183,495 random pairs and 12 times violate it"
    assert newcomer.unprinted(sentence, "0 of 183495 pairs") == []
    assert newcomer.unprinted(sentence, "0 of 183494 pairs") == ["183,495"]


def test_it_says_which_line_failed_and_what_it_said(newcomer, repository, capsys):
    there = repository("# A\n\n```sh\necho fine  # a word\necho I broke; exit 3\n```\n")
    with pytest.raises(SystemExit, match=r"README\.md:5 failed: echo I broke; exit 3 \(exit code 3\)"):
        newcomer.follow(newcomer.Newcomer(there), quick=True)
    said = capsys.readouterr().out
    assert "README.md:4: echo fine\n" in said
    assert "\nI broke\n" in said


def test_its_home_is_empty_and_nothing_of_ours_is_set(newcomer, repository, monkeypatch):
    monkeypatch.setenv("SCANSNAP_DATA", "mine")
    monkeypatch.setenv("PYTHONPATH", "mine")
    there = repository('```sh\ntest -z "$SCANSNAP_DATA$PYTHONPATH" && test -z "$(ls -A ~)" || exit 9\nexit 4\n```\n')
    with pytest.raises(SystemExit, match="exit code 4"):
        newcomer.follow(newcomer.Newcomer(there), quick=True)


def test_a_python_snippet_is_run_whole_and_a_dead_link_is_found(newcomer, repository):
    there = repository("```python\nopen('made', 'w').write('x')\nfor _ in range(2):\n    pass\n```\n[a](nowhere.md)\n")
    with pytest.raises(SystemExit, match=r"links to nowhere\.md"):
        newcomer.follow(newcomer.Newcomer(there), quick=True)
    assert (there / "scansnap" / "made").read_text() == "x"


PLAN = """# Plan

<!-- minutes -->

## 1. Make a file

```text title="a.txt"
hello
```

```sh
cat a.txt
cp a.txt b.txt
```

You see `hello`. You get `b.txt`.
"""


@pytest.fixture
def plan(newcomer, repository, tmp_path):
    """Performs a test plan in a clone; gives the minutes."""

    def perform(text):
        there = repository("# A\n")
        folder = tmp_path / "here" / "docs" / "contributing"
        folder.mkdir(parents=True)
        (folder / "afternoon.md").write_text(text)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["add", "-A"], ["commit", "-q", "-m", "two"]):
            subprocess.run([*git, *words], cwd=tmp_path / "here", check=True)
        return newcomer.perform(newcomer.Newcomer(there))

    return perform


def test_a_task_is_performed_and_its_minutes_go_into_the_page(newcomer, plan):
    minutes = plan(PLAN)
    assert list(minutes) == ["1. Make a file"]
    once = newcomer.MINUTES.sub(lambda _: newcomer.table(minutes), PLAN)
    again = newcomer.MINUTES.sub(lambda _: newcomer.table(minutes), once)
    assert "| 1. Make a file | 0.0 | 0.0 |" in once
    assert again == once


@pytest.mark.parametrize(("there", "instead", "message"), [
    ("`hello`", "`goodbye`", "'goodbye' was not printed"),
    ("`b.txt`", "`c.txt`", r"c\.txt was not made"),
    ("cp a.txt", "cp lost.txt", "exit code 1"),
])  # fmt: skip
def test_a_task_that_does_not_give_what_the_page_says_fails(plan, there, instead, message):
    assert there in PLAN
    with pytest.raises(SystemExit, match=message):
        plan(PLAN.replace(there, instead))


def test_the_test_plan_has_ten_tasks_that_each_do_and_check_something(newcomer):
    found = newcomer.tasks((ROOT / newcomer.TASKS).read_text(encoding="utf-8"))
    assert [task.title.split(".")[0] for task in found] == [str(i) for i in range(1, 11)]
    for task in found:
        assert task.commands, task.title
        assert task.seen or task.made, task.title
        for name in task.files:
            assert name in "".join(other.commands + "".join(other.files.values()) for other in found) or Path(
                name
            ).stem in "".join(other.commands for other in found), name
