"""The dashboard in a real browser: under load, with a token, with 1,000 instances, in light and dark, by keyboard."""

import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from browsing import chromium, window
from gateway_world import SmallHost, running
from serving import TOKEN, serving, write_app

from fairlead.engine.live.glance import AppGlance, DeviceGlance, InstanceGlance, NodeGlance

APP = """
@app.function(vcpus=1)
def prepare(value):
    time.sleep(0.004)
    return value


@app.function(vcpus=1)
def work(value):
    time.sleep(0.1)
    print("worked on", value, "<i id='injected'></i>")
    return value


app.workflow("sort", prepare >> work, slo="600ms", example=1)
"""
NODES = "nodes: [{name: small, vcpus: 2}]\n"
OVERLOAD_RPS = 30  # two vCPUs do at most 2 / 0.104 s = 19 per second


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """An app, and 1.5 times as many requests as it can serve, for some seconds."""
    folder = tmp_path_factory.mktemp("dashboard")
    (folder / "nodes.yaml").write_text(NODES)
    app = write_app(folder / "app.py", APP)
    with serving(app, folder / "state", "--nodes", str(folder / "nodes.yaml")) as served:
        url = f"http://127.0.0.1:{served.port}"
        command = [sys.executable, "-m", "fairlead.cli", "load", url, "--rate", str(OVERLOAD_RPS), "--duration", "600s"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
            try:
                yield url
            finally:
                load.kill()


@pytest.fixture(scope="module")
def opened(browser, served):
    """One window for most tests: each new one costs a process of the browser."""
    with window(browser, served) as it:
        yield it


@pytest.fixture
def it(opened):
    """That window. A test begins with the view that it needs, and leaves nothing on the console."""
    yield opened
    assert opened.complaints == []


VIEWS = ("", "requests", "machines", "what-if", "logs")


def go(it, view):
    """Change to a view."""
    it.page.evaluate("view => { location.hash = `#/${view}`; }", view)
    it.page.locator(f"nav a[aria-current=page]:is([href='#/{view}'], [href^='#/{view}/'])").wait_for()
    it.page.locator("main h1").first.wait_for()


def test_under_load_attainment_and_refusals_move(it):
    go(it, "")
    in_time = it.page.locator(".figure", has_text="In time").locator("dd").first
    it.wait_until(lambda: re.fullmatch(r"[1-9]\d(\.\d)? %", in_time.inner_text()))
    first = in_time.inner_text()
    it.wait_until(lambda: in_time.inner_text() != first)
    reasons = it.page.locator("section", has_text="Refusals by reason").locator("tbody")
    reasons.locator("tr").first.wait_for()
    before = reasons.inner_text()
    it.wait_until(lambda: reasons.inner_text() != before)
    assert it.page.locator(".chart canvas").count() == 4
    assert "run" in it.page.locator("svg .stage").first.text_content()
    assert it.page.locator("svg .stage").count() == 2


def test_the_story_of_a_request_opens(it):
    go(it, "requests")
    it.page.locator(".tools select").select_option("in_time")
    it.page.get_by_role("button", name=re.compile("Story of demo-1-")).first.click()
    bars = it.page.locator("dialog .waterfall rect.part")
    bars.first.wait_for()
    assert bars.count() >= 2  # each of the two stages ran
    words = it.text("dialog .words")
    assert "answered after" in words
    assert "prepare: " in words
    it.page.keyboard.press("Escape")
    it.page.locator("dialog").wait_for(state="detached")


def test_a_replay_ranks_another_policy(it):
    go(it, "what-if")
    it.page.get_by_label("fifo").check()
    it.page.get_by_label("earliest-deadline").uncheck()
    it.page.get_by_role("button", name="Replay").click()
    it.page.locator(".finding").wait_for()
    ranks = it.page.locator("tbody th").all_inner_texts()
    assert ranks[0].startswith("1. fairlead")
    assert ranks[1].startswith("2. fifo")  # which answers in order of arrival, and so late under overload
    assert ranks[2].startswith("fairlead")  # as it was served


def test_a_function_is_held_and_released(it):
    go(it, "machines")
    row = it.page.locator("tr", has=it.page.get_by_role("rowheader", name="prepare"))
    row.get_by_label("Instances of prepare").fill("1")
    row.get_by_label("Hold prepare at this number").click()
    it.page.get_by_text("prepare is held at 1 instance.").wait_for()
    row.get_by_label("Release prepare").click()
    it.page.get_by_text("prepare is the policy's again.").wait_for()


def test_lines_of_functions_are_followed(it):
    go(it, "logs")
    it.page.locator("h1", has_text="Logs").wait_for()
    if not it.page.evaluate("fetch('/v1/dashboard').then(answer => answer.json())")["has_logs"]:
        it.page.get_by_text("does not collect").wait_for()
        return
    lines = it.page.get_by_role("log").locator("div")
    lines.filter(has_text="worked on 1 <i id='injected'></i>").first.wait_for()
    assert it.page.locator("#injected").count() == 0  # it is shown, not obeyed
    shown = lines.count()
    it.wait_until(lambda: lines.count() > shown)  # it goes on
    it.page.locator(".tools select").select_option("prepare")
    it.page.get_by_text("Nothing yet.").wait_for()  # which prints nothing


def test_a_link_that_was_cut_off_opens_the_overview(it):
    it.page.evaluate("() => { location.hash = '#/__proto__/%'; }")
    it.page.locator("nav a[aria-current=page]", has_text="Overview").wait_for()
    it.page.locator("main h1").first.wait_for()


def test_every_control_has_a_name_and_is_reached_by_keyboard(it):
    for view in VIEWS:
        go(it, view)
        assert it.page.evaluate(_NAMELESS, _NAMED) == []
        assert it.page.locator("header").count() == it.page.locator("main").count() == 1
        assert it.page.locator("nav[aria-label] a[aria-current=page]").count() == 1
        first = "document.querySelector('a, button, input, select, [tabindex]')"
        reached = [it.page.evaluate(f"({first}.focus(), {first}.innerText)")]
        for _ in range(8):
            it.page.keyboard.press("Tab")
            reached.append(it.page.evaluate("document.activeElement.innerText.trim()"))
        words = ["Skip to content", "Fairlead", "Overview", "Requests", "Machines", "What if", "Logs", "◐"]
        assert reached[:8] == words
        assert it.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


_NAMED = "button, a, input, select, summary, canvas, svg, [role=img], [role=region], [role=log]"
_NAMELESS = """named => [...document.querySelectorAll(named)].filter(one => {
  const picture = one.closest('[role=img]');
  if (one.closest('[aria-hidden=true]') || picture !== null && picture !== one) return false;
  const labels = [...(one.labels ?? [])].map(label => label.innerText).join('');
  const text = ['SELECT', 'INPUT'].includes(one.tagName) ? '' : one.textContent;
  return !(one.getAttribute('aria-label') || one.title || labels || text).trim();
}).map(one => one.outerHTML.slice(0, 120))"""


def test_light_and_dark_follow_the_system_and_the_switch(it, browser, served, tmp_path):
    ground = "getComputedStyle(document.body).backgroundColor"
    with window(browser, served, color_scheme="dark") as own:
        own.page.locator(".figures").wait_for()
        own.page.screenshot(path=tmp_path / "dark.png")
        dark = own.page.evaluate(ground)
        own.page.get_by_label("Switch between light and dark").click()
        light = own.page.evaluate(ground)
        own.page.screenshot(path=tmp_path / "light.png")
        own.page.reload()
        own.page.locator(".figures").wait_for()
        assert own.page.evaluate(ground) == light  # it is remembered
    it.page.emulate_media(color_scheme="light")
    assert it.page.evaluate(ground) == light
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)[:3]))
    assert (tmp_path / "dark.png").read_bytes() != (tmp_path / "light.png").read_bytes()


def test_a_narrow_screen_needs_no_sideways_scrolling(it):
    wide = it.page.viewport_size
    it.page.set_viewport_size({"width": 390, "height": 800})
    for view in VIEWS:
        go(it, view)
        assert it.page.evaluate("document.documentElement.scrollWidth") <= 390, view
    it.page.set_viewport_size(wide)


def test_the_page_asks_for_the_token_and_puts_it_in_no_url(browser, tmp_path):
    with running(SmallHost({"shop.echo": lambda value, _: value}), tmp_path, token=TOKEN) as it:
        opened = chrome_of(browser, it.url)
        with opened as page:
            page.page.get_by_label("Token").fill("a-wrong-token-0123")
            page.page.get_by_role("button", name="Open the dashboard").click()
            page.page.get_by_role("alert").wait_for()
            page.page.get_by_label("Token").fill(TOKEN)
            page.page.keyboard.press("Enter")
            page.page.locator(".figures").wait_for()
            assert not any(TOKEN in url for url in page.urls)
            page.page.reload()  # the tab remembers it
            page.page.locator(".figures").wait_for()
            assert page.page.evaluate("localStorage.length") == 0
            page.page.get_by_role("button", name="Forget token").click()
            page.page.get_by_label("Token").wait_for()


@contextmanager
def chrome_of(browser, url):
    """A window in which answers of 401 are expected: the browser writes each of them on its console."""
    with window(browser, url) as it:
        yield it
        it.complaints[:] = [line for line in it.complaints if "401 (Unauthorized)" not in line]


class LargeHost(SmallHost):
    """One app on 40 nodes with 1,000 instances."""

    instances = 1000

    def glance(self):
        (app,) = super().glance()
        nodes = tuple(
            NodeGlance(
                name=f"node-{number}",
                kind="gpu" if number % 4 == 0 else "cpu",
                state="up",
                speed=1.0,
                vcpus=32,
                used_vcpus=number % 32,
                memory_gb=64,
                used_memory_gb=number,
                idle_memory_gb=3,
                pressure=None,
                devices=(DeviceGlance("mps", 7, number % 7, 80, 20),) if number % 4 == 0 else (),
            )
            for number in range(40)
        )
        instances = tuple(
            InstanceGlance(number, "echo", number % 40, None, number % 3, 1, 0, 0.5, number * 1.5)
            for number in range(self.instances)
        )
        return (AppGlance(**{**fields(app), "nodes": nodes, "instances": instances}),)


def fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_a_thousand_instances_are_shown_without_a_row_for_each(browser, tmp_path):
    host = LargeHost({"shop.echo": lambda value, _: value})
    with running(host, tmp_path) as gateway, window(browser, f"{gateway.url}/#/machines") as it:
        it.page.get_by_text("1,000 instances shown").wait_for()
        assert it.page.locator(".node").count() == 40
        table = it.page.get_by_role("region", name="Instances")
        assert table.locator("tbody tr").count() < 100
        assert table.locator("table").get_attribute("aria-rowcount") == "1001"
        table.evaluate("table => { table.scrollTop = table.scrollHeight; }")
        table.get_by_role("rowheader", name="999").wait_for()
        host.instances = 200
        table.get_by_role("rowheader", name="199").wait_for()  # the list has become shorter than where it was read
        table.get_by_role("rowheader", name="180").wait_for()
        it.page.get_by_role("button", name="node-7", exact=True).click()
        it.page.get_by_text("5 instances shown", exact=True).wait_for()
        it.page.locator("label", has_text="Node").locator("select").select_option("node-8")
        table.get_by_role("rowheader", name="8", exact=True).wait_for()
