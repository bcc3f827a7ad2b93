"""The frame of every page: head, style, script and security policy; one file that needs no network."""

from html import escape
from importlib.resources import files

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page_style() -> str:
    """The style of every page: what reports share with the dashboard, and their own."""
    return _both("css")


def _both(kind: str) -> str:
    shared, own = files("fairlead.web"), files("fairlead.report")
    parts = (shared.joinpath(f"theme.{kind}"), own.joinpath(f"page.{kind}"))
    return "".join(part.read_text(encoding="utf-8") for part in parts)


def whole_page(title: str, body: str) -> str:
    """A complete HTML page with this title and content, in the dashboard's look, and complete without scripts."""
    style, script = page_style(), _both("js")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)} · Fairlead</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<style>\n{style}</style>\n</head>\n<body>\n'
        f"{body}<script>\n{script}</script>\n</body>\n</html>\n"
    )


def page_table(heads: list[str], rows: list[str]) -> str:
    """A table that scrolls sideways where it is too wide; `heads` are cells and `rows` are rows, both HTML."""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
