"""The frame of every page: head, style, script and security policy; one file that needs no network."""

from html import escape
from importlib.resources import files

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def whole_page(title: str, body: str) -> str:
    """A complete HTML page with this title and content; light and dark, and complete without scripts."""
    resources = files("fairlead.report")
    style, script = (resources.joinpath(file).read_text(encoding="utf-8") for file in ("page.css", "page.js"))
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
