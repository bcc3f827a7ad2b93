"""Pictures that are drawn from committed figures are what their programs draw."""

from doc_pages import DOCS, ROOT, run_python


def test_goodput_is_drawn_from_the_figures_of_live_speed(tmp_path):
    done = run_python([str(ROOT / "benchmarks" / "live" / "goodput_figure.py")], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (DOCS / "goodput.svg").read_text(encoding="utf-8")
