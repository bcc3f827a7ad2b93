"""The page of a policy explains every cell of the core league in which it has less than half of the best."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from fairlead.experiments.rows import committed_rows

PAGES = Path(__file__).parents[2] / "docs" / "policies"
ROWS = committed_rows("fairlead.experiments.league")
BEST = {
    cell: max(row["attainment"] or 0.0 for row in ROWS if (row["scenario"], row["load"]) == cell)
    for cell in {(row["scenario"], row["load"]) for row in ROWS}
}
TOKEN = re.compile(
    r"`([a-z0-9.*-]+)`|(Every scenario)|(except)|(at all loads)|at loads? ((?:[\d.]+(?:, | and )?)+)|(;)"
)


def explained(section):
    """What the bullets of a section are about: patterns of scenarios, patterns that are left out, loads.

    The head of a bullet ends with its first colon. It names scenarios and then their loads, any number of times; a
    bracket ends what follows `except`.
    """
    found = []
    for bullet in section.split("\n* ")[1:]:
        head = re.sub(r"\([^)]*\)", ";", " ".join(bullet.split())).partition(":")[0]
        names, left_out, is_exception, is_closed = [], [], False, False
        for name, every, exception, all_loads, loads, end in TOKEN.findall(head):
            if end:
                is_exception = False
            elif exception:
                is_exception = True
            elif name or every:
                if is_exception:
                    left_out.append(name)
                    continue
                if is_closed:
                    names, left_out, is_closed = [], [], False
                names.append(name or "*")
            else:
                chosen = (0.5, 1, 3) if all_loads else tuple(map(float, re.findall(r"\d+(?:\.\d+)?", loads)))
                found.append((names, left_out, chosen))
                is_closed, is_exception = True, False
    return found


def covers(said, scenario, load):
    names, left_out, loads = said
    is_named = any(fnmatchcase(scenario, name) for name in names)
    return load in loads and is_named and not any(fnmatchcase(scenario, name) for name in left_out)


def test_a_bullet_is_read_as_scenarios_and_loads():
    said = explained(
        "\n* `a` and `b` at load 1 (4 %), all `c-*` at loads 0.5 and 3 except `c-d` (0 %), `e` at all loads: `f`."
    )
    cells = [(name, load) for name in ("a", "b", "c-c", "c-d", "e", "f") for load in (0.5, 1, 3)]
    assert [cell for cell in cells if any(covers(one, *cell) for one in said)] == [
        ("a", 1), ("b", 1), ("c-c", 0.5), ("c-c", 3), ("e", 0.5), ("e", 1), ("e", 3)
    ]  # fmt: skip


@pytest.mark.parametrize("policy", dict.fromkeys(row["policy"] for row in ROWS))
def test_every_cell_below_half_of_the_best_is_explained(policy):
    section = (PAGES / f"{policy}.md").read_text(encoding="utf-8").partition("## Where it loses")[2]
    said = explained(section.partition("\n## ")[0])
    low = [
        (row["scenario"], row["load"])
        for row in ROWS
        if row["policy"] == policy and (row["attainment"] or 0.0) < BEST[row["scenario"], row["load"]] / 2
    ]
    assert [cell for cell in low if not any(covers(one, *cell) for one in said)] == []
