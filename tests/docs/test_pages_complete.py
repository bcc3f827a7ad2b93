"""The reference pages name everything there is; links lead somewhere; tables and maps are true."""

import re
import tomllib
from fnmatch import fnmatch
from typing import get_args

import pytest
import yaml
from doc_pages import DOCS, PAGES, ROOT, anchors, blocks, links

from fairlead.experiments import EXPERIMENTS
from fairlead.model import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA
from fairlead.policy import Action, View, parameters, policy_class
from fairlead.policy.registry import BUILT_IN
from fairlead.report import Summary
from fairlead.workload import shipped_names
from fairlead.workload.parse import arrivals, cluster, functions, scenario

README = (ROOT / "README.md").read_text(encoding="utf-8")


def guide(name: str) -> str:
    return (DOCS / "guide" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} does not exist."
        assert found.is_relative_to(ROOT), f"{target} lies outside the repository."
        if anchor:
            assert anchor in anchors(found), f"{target}: there is no such heading."


@pytest.mark.parametrize("name", BUILT_IN)
def test_policy_has_a_page_that_names_its_parameters(name):
    page = DOCS / "policies" / f"{name}.md"
    assert page.exists()
    text = page.read_text(encoding="utf-8")
    for parameter in parameters(policy_class(name)):
        assert f"`{parameter}`" in text
    assert f"({name}.md)" in (DOCS / "policies" / "index.md").read_text(encoding="utf-8")
    assert f"(docs/policies/{name}.md)" in README
    assert f"policies/{name}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_is_listed_with_its_command(name):
    assert f"`{name}`" in (DOCS / "experiments.md").read_text(encoding="utf-8")
    assert f"| `fairlead reproduce {name}` |" in (DOCS / "results.md").read_text(encoding="utf-8")


def test_scenario_page_lists_every_shipped_scenario():
    section = guide("scenarios.md").partition("## Shipped scenarios")[2].partition("\n## ")[0]
    patterns = re.findall(r"`([a-z0-9.*-]+)`", section)
    assert [n for n in shipped_names() if not any(fnmatch(n, pattern) for pattern in patterns)] == []


def test_scenario_page_names_every_key():
    known = [
        scenario._RUN,
        scenario._DECISION,
        scenario._BOUNDS,
        cluster._NODE,
        cluster._DEVICE,
        cluster._PRICE,
        functions._FUNCTION,
        functions._PROFILE,
        functions._LAW,
        functions._LOGNORMAL,
        functions._ROW,
        functions._CONFIGURATION,
        arrivals._PROCESSES,
        arrivals._WINDOW,
    ]
    text = guide("scenarios.md")
    missing = {key for keys in known for key in keys if f"`{key}`" not in text}
    assert not missing


def test_policy_page_names_every_query_and_action():
    text = guide("policy.md")
    queries = [name for name in vars(View) if not name.startswith("_")]
    missing = [name for name in queries if not re.search(rf"\| `{name}\b", text)]
    missing += [action.__name__ for action in get_args(Action) if f"| `{action.__name__}(" not in text]
    assert not missing


def test_results_page_names_every_number_and_column():
    text = guide("reading-results.md")
    names = {*Summary.__struct_fields__, *REQUEST_SCHEMA, *INVOCATION_SCHEMA, *INSTANCE_SCHEMA}
    assert not {name for name in names if f"`{name}`" not in text}


def test_folder_map_is_true_and_complete():
    (text,) = [b.text for b in blocks(ROOT / "README.md") if b.text.startswith("src/fairlead/")]
    named = set()
    for line in text.splitlines():
        folder = line.split()[0]
        named.add(f"src/fairlead/{folder}" if line.startswith(" ") else folder)
    assert all((ROOT / folder).is_dir() for folder in named)
    packages = {file.parent for file in (ROOT / "src/fairlead").glob("*/__init__.py")}
    assert {package.name for package in packages} <= {folder.split("/")[2] for folder in named if folder.count("/") > 2}


def test_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]


def test_changelog_fragments_are_one_line_of_a_known_kind():
    for file in (ROOT / "changelog.d").glob("*.md"):
        if file.name != "README.md":
            assert re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md", file.name)
            assert file.read_text(encoding="utf-8").count("\n") == 1
