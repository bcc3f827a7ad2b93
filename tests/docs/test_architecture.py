"""The page on architecture names files in the order in which a request meets them: each must exist."""

import re
from pathlib import Path

import fairlead

PACKAGE = Path(fairlead.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"


def test_every_file_and_folder_that_the_page_names_exists():
    named = re.findall(
        r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", PAGE.read_text(encoding="utf-8").replace("`src/fairlead/`", "")
    )
    assert len(named) > 40
    assert [path for path in named if not (PACKAGE / path).exists()] == []
