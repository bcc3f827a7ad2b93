"""Functions that work on text: base64, Markdown, sentiment, JSON, HTML from a template.

Each has a part that does one thing to one input, and `..._work(size)`, which makes the input of that size and gives an
answer small enough to check.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html import escape
from string import Template

Answer = dict[str, object]

_BASE64_ROUNDS = 12
_NEGATIONS = frozenset({"not", "no", "never", "hardly"})
_BOOSTS: Mapping[str, float] = {"very": 1.5, "really": 1.4, "slightly": 0.5, "somewhat": 0.7}
_FEELINGS: Mapping[str, float] = {
    **dict.fromkeys(("good", "kind", "bright", "warm", "useful", "clear"), 1.0),
    **dict.fromkeys(("great", "lovely", "superb", "delightful"), 2.0),
    **dict.fromkeys(("bad", "dull", "slow", "cold", "noisy", "late"), -1.0),
    **dict.fromkeys(("awful", "terrible", "broken", "hopeless"), -2.0),
}
_SENTENCES = (
    "The staff were kind and the room was very bright",
    "Breakfast came late and the coffee was cold",
    "I have never had a good night there",
    "It was not bad, and the view was superb",
    "A really awful road leads to a lovely house",
    "The door was broken and nobody came",
)
_WORD = re.compile(r"[a-z']+")


def base64_work(size: int) -> Answer:
    """Encode and decode so many kilobytes, a dozen times over."""
    data = sha256(b"base64").digest() * (size * 32)
    back, text = data, b""
    for _ in range(_BASE64_ROUNDS):
        text = b64encode(back)
        back = b64decode(text)
    return {"bytes": len(data), "characters": len(text), "is_same": back == data}


def html_of(markdown: str) -> str:
    """Headings, paragraphs, lists, fenced code, emphasis, code spans and links as HTML; the rest is plain text."""
    return "\n".join(_blocks(markdown))


def markdown_work(size: int) -> Answer:
    """Make a page of so many sections HTML."""
    section = (
        "## Section {0}\n\nSome *plain* and some **strong** words, `code_{0}`\nand [a link](https://example.org/{0}).\n\n"
        "- first of {0}\n- second & last\n\n```\nif a < b:\n    swap(a, b)\n```\n\n"
    )
    html = html_of("# Page\n\n" + "".join(section.format(i) for i in range(size)))
    return {"characters": len(html), "headings": html.count("<h"), "items": html.count("<li>")}


def feeling_of(sentence: str) -> float:
    """From -1 (bad) to 1 (good): a word counts by a list, turned round after a negation and scaled after a boost."""
    total, turn, boost = 0.0, 1.0, 1.0
    for word in _WORD.findall(sentence.lower()):
        if word in _NEGATIONS:
            turn = -1.0
        elif word in _BOOSTS:
            boost = _BOOSTS[word]
        elif word in _FEELINGS:
            total += turn * boost * _FEELINGS[word]
            turn = boost = 1.0
    return total / (abs(total) + 2.0)


def sentiment_work(size: int) -> Answer:
    """Judge so many hundred sentences."""
    feelings = [feeling_of(_SENTENCES[i % len(_SENTENCES)]) for i in range(100 * size)]
    return {
        "sentences": len(feelings),
        "good": sum(one > 0 for one in feelings),
        "bad": sum(one < 0 for one in feelings),
    }


def json_work(size: int) -> Answer:
    """Write so many hundred records as JSON, read them, and add up what came back."""
    records = [
        {
            "id": i,
            "name": f"item {i}",
            "tags": ["a", "b", str(i % 7)],
            "at": {"x": i / 4, "y": -i},
            "is_new": i % 2 == 0,
        }
        for i in range(100 * size)
    ]
    text = json.dumps(records, indent=1, sort_keys=True)
    back = json.loads(text)
    return {"characters": len(text), "ids": sum(one["id"] for one in back), "is_same": back == records}


_PAGE = Template("<html><head><title>$title</title></head><body><table>\n$rows\n</table></body></html>\n")
_ROW = Template("<tr class='$shade'><td>$number</td><td>$name</td><td>$price</td></tr>")


def page_of(title: str, goods: Mapping[str, float]) -> str:
    """A page with a table of names and prices; what a name holds cannot break out of its cell."""
    rows = "\n".join(
        _ROW.substitute(
            shade="odd" if i % 2 else "even", number=i + 1, name=escape(name, quote=True), price=f"{price:.2f}"
        )
        for i, (name, price) in enumerate(goods.items())
    )
    return _PAGE.substitute(title=escape(title), rows=rows)


def dynamic_html_work(size: int) -> Answer:
    """Fill a page with so many hundred rows."""
    page = page_of("Goods <today>", {f"nuts & bolts no. {i}": 0.25 * i for i in range(100 * size)})
    return {"characters": len(page), "rows": page.count("<tr ")}


_SPANS = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"\*([^*]+)\*"), r"<em>\1</em>"),
    (re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)"), r'<a href="\2">\1</a>'),
)
_HEADING = re.compile(r"(#{1,6}) +(.*)")


def _blocks(markdown: str) -> Iterator[str]:
    """Block by block; a block ends where a line of another sort begins."""
    open_block, lines = "", list[str]()
    for line in markdown.splitlines():
        if open_block == "pre":
            if line.startswith("```"):
                yield _closed(open_block, lines)
                open_block, lines = "", []
            else:
                lines.append(escape(line))
            continue
        kind, content = _sort_of(line)
        if kind != open_block or kind.startswith("h"):
            if lines:
                yield _closed(open_block, lines)
            open_block, lines = kind, []
        if kind and kind != "pre":
            lines.append(_spans(content))
    if lines:
        yield _closed(open_block, lines)


def _sort_of(line: str) -> tuple[str, str]:
    """The element a line belongs to, and its content; no element for an empty line."""
    heading = _HEADING.fullmatch(line)
    if heading is not None:
        return f"h{len(heading[1])}", heading[2]
    if line.startswith("```"):
        return "pre", ""
    if line.startswith("- "):
        return "ul", line[2:]
    return ("p", line) if line.strip() else ("", "")


def _closed(element: str, lines: list[str]) -> str:
    if element == "ul":
        return "<ul>\n" + "\n".join(f"<li>{line}</li>" for line in lines) + "\n</ul>"
    if element == "pre":
        return "<pre><code>" + "\n".join(lines) + "</code></pre>"
    return f"<{element}>" + "\n".join(lines) + f"</{element}>"


def _spans(text: str) -> str:
    text = escape(text, quote=False)
    for pattern, replacement in _SPANS:
        text = pattern.sub(replacement, text)
    return text
