"""What the documentation shows is run, and prints what it says."""

import os
import sys
from runpy import run_path
from unittest.mock import patch

import pytest
from doc_pages import DOCS, ROOT, RUN, blocks, run_fairlead, run_page, run_python

EXAMPLES = [
    pytest.param(script, marks=[pytest.mark.ray_long] if "ray" in script.stem else [], id=script.stem)
    for script in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_a_command_is_the_same_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["simulate", "quickstart", "--policy", "fifo", "--set", "duration_s=20"]
    alone = run_python(["-m", "fairlead.cli", *arguments], tmp_path)
    here = run_fairlead(" ".join(["fairlead", *arguments]))
    assert (here.exit_code, here.stdout, here.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_the_policy_of_contributing_passes_its_own_tests(tmp_path):
    parts = [b.text for b in blocks(ROOT / "CONTRIBUTING.md") if b.language == "python" and b.mark != "fragment"]
    (tmp_path / "test_contributing.py").write_text("\n".join(parts), encoding="utf-8")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    done = run_python(command, tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("script", EXAMPLES)
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.syspath_prepend(str(script.parent))
    with patch.dict(os.environ):
        run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert not any(tmp_path.iterdir()), "an example leaves files behind."


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES)
def test_example_runs_in_a_process_of_its_own(script, tmp_path):
    done = run_python(["-W", "error", str(script)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not any(tmp_path.iterdir()), "an example leaves files behind."


def test_the_site_builds_without_a_warning(tmp_path):
    done = run_python(["-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")], ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {file.relative_to(tmp_path / "site").with_suffix(".md") for file in (tmp_path / "site").rglob("*.html")}
    assert {page.relative_to(DOCS) for page in DOCS.rglob("*.md")} <= built
