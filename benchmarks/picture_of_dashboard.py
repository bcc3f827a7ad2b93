"""Draws `docs/dashboard.png`: a real app under changing load, seen by a real browser.

`python benchmarks/picture_of_dashboard.py [FILE]` takes a minute. It needs Chromium (`apt-get install chromium`), and
of the development packages playwright and Pillow.
"""

import re
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "docs" / "dashboard.png"
CHROMIUM = "/usr/bin/chromium"
SIZE = {"width": 1280, "height": 1260}
PHASES = ((14, 14), (26, 14), (58, 16), (18, 22))  # requests per second, and for how many seconds
MOST_BYTES = 300_000

APP = """
import time

from fairlead import App, fork

app = App("photos")


@app.function(batch=4)
def decode(photos):
    time.sleep(0.010 + 0.002 * len(photos))
    return photos


@app.function(batch=8)
def classify(photos):
    time.sleep(0.026 + 0.003 * len(photos))
    return photos


@app.function(batch=4)
def caption(photos):
    time.sleep(0.034 + 0.008 * len(photos))
    return photos


@app.function
def rank(photo):
    time.sleep(0.005)
    return photo


app.workflow("sort", decode >> fork(classify, caption) >> rank, slo="250ms", example={"photo": 1})
"""


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fl-picture-") as text:
        folder = Path(text)
        (folder / "app.py").write_text(APP)
        command = [sys.executable, "-m", "fairlead", "serve", "app.py", "--port", "0", "--state", str(folder / "state")]
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            try:
                url = re.search(r"http://\S+", server.stdout.readline())[0]
                path.write_bytes(picture(url))
            finally:
                server.terminate()
    print(f"{path}: {path.stat().st_size:,} bytes")
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"{path} must be below {MOST_BYTES:,} bytes")


def picture(url: str) -> bytes:
    """The page at the end of the last phase, with as many colours as a palette has."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", device_scale_factor=1.5)
        page.goto(url)
        loads = []
        for rate, seconds in PHASES:
            options = ["--rate", str(rate), "--duration", f"{seconds}s", "--quiet"]
            loads.append(subprocess.Popen([sys.executable, "-m", "fairlead", "load", url, *options]))
            page.wait_for_timeout(1000 * seconds)
        shot = page.screenshot()
        for load in loads:
            load.wait()
        browser.close()
    out = BytesIO()
    whole = Image.open(BytesIO(shot)).convert("RGB")
    whole.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
