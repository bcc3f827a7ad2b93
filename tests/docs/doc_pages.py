"""Pages of the documentation as data: their blocks, links, headings, and what runs them."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner, Result

from fairlead.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE_DOCS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "changelog.d/README.md",
    "examples/README.md",
)
APP_PAGES = sorted((ROOT / "examples" / "apps").glob("*/README.md"))
PAGES = (*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OUTSIDE_DOCS), *APP_PAGES)
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1"}
RUN = (*sorted(DOCS.rglob("*.md")), ROOT / "README.md")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (fragment|slow|exit (\d+)) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its text begins, `mark` the comment before it without its brackets."""

    language: str
    text: str
    line: int
    mark: str
    follows_directly: bool


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found, end = [], 0
    for fence in _FENCE.finditer(text):
        mark = _MARK.search(text[: fence.start()])
        found.append(
            Block(
                language=fence[1],
                text=fence[2],
                line=text.count("\n", 0, fence.start(2)) + 1,
                mark=mark[1] if mark else "",
                follows_directly=bool(found) and not text[end : fence.start()].strip(),
            )
        )
        end = fence.end()
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """The targets of a page's links to other files of the repository, with their anchors."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in found if not target.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """What a link can point at in a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def run_page(page: Path) -> None:
    """Run what a page shows, in order, in one namespace and in the working directory."""
    names: dict[str, object] = {"__name__": "__page__"}
    printed = ""
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.language == "python" and block.mark != "fragment":
            printed = _run_python(block, page, names)
        elif block.language == "text" and block.follows_directly:
            assert is_same(block.text, printed), f"{where} is printed otherwise:\n{printed}"
        elif block.language == "console" and block.mark != "slow":
            code = int(block.mark.removeprefix("exit ") or 0)
            for command, expected in commands(block):
                done = run_fairlead(command)
                assert done.exit_code == code, f"{where}: {command} gave {done.exit_code}:\n{done.stderr}"
                shown = done.stderr if code == 2 else done.stdout
                assert not expected or is_same(expected, shown), f"{where}: {command} prints otherwise:\n{shown}"


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown of it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def is_same(expected: str, printed: str) -> bool:
    """Whether this is what was printed: a line `...` stands for any number of lines, and runs of blanks are alike."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in _lines(expected))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def run_fairlead(command: str) -> Result:
    """Run a command in this process, as if typed into a terminal of 100 columns.

    Starting an interpreter and loading the libraries takes longer than most of these commands;
    `test_a_command_is_the_same_in_a_process_of_its_own` compares with a real process.
    """
    program, *arguments = command.split()
    assert program == "fairlead", f"not a command of ours: {command}"
    return CliRunner().invoke(app, arguments, prog_name="fairlead", env=TERMINAL, catch_exceptions=False)


def run_python(arguments: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the same Python with these arguments; further keywords are environment variables."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1", **TERMINAL, **variables}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def _run_python(block: Block, page: Path, names: dict[str, object]) -> str:
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")  # so that errors name the page's line
    with redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()
