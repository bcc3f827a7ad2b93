"""Learning curves: moving means, bands over agents, and pictures that need nothing else."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fairlead.report.learning_figure import Learned, Learning, band_of, learning_page, learning_svg

LEARNING = Learning(
    title="a <b> & c",
    rewards=np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 1.0]]),
    functions=[Learned(function="re<size", reward=0.5, reward_deviation=0.125, slo_preservation=0.75, utilisation=0.3)],
    facts={"seed": "<7>"},
    finding="They learnt.",
    command="fairlead train simppo",
    next_command="fairlead simulate simppo-12",
)


def test_means_move_over_the_last_episodes():
    band = band_of(np.array([[1.0], [2.0], [6.0], [4.0]]), window=2)
    assert band.mean.tolist() == [1.0, 1.5, 4.0, 5.0]
    assert band.least.tolist() == band.most.tolist() == band.mean.tolist()


def test_bands_are_over_agents():
    band = band_of(np.array([[0.0, 1.0, 2.0, 3.0, 14.0]]))
    assert (band.least[0], band.lower[0], band.mean[0], band.upper[0], band.most[0]) == (0, 1, 4, 3, 14)


def test_an_agent_counts_only_while_it_is_there():
    rewards = np.array([[1.0, np.nan], [1.0, np.nan], [1.0, 3.0], [1.0, 5.0]])
    assert band_of(rewards, window=2).mean.tolist() == [1.0, 1.0, 2.0, 2.5]


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (2,)])
def test_nothing_learnt_is_refused(shape):
    with pytest.raises(ValueError, match="rewards must be"):
        band_of(np.zeros(shape))


@pytest.mark.parametrize("episodes", [1, 2, 40])
def test_svg_is_well_formed_and_stays_in_its_frame(episodes):
    rewards = np.random.default_rng(0).normal(size=(episodes, 3))
    svg = learning_svg(Learning(**{**vars(LEARNING), "rewards": rewards}))
    root = ElementTree.fromstring(svg)
    assert "a &lt;b&gt; &amp; c" in svg
    paths = [node.get("d", "") for node in root.iter("{http://www.w3.org/2000/svg}path")]
    assert len(paths) == 3
    numbers = [float(number) for path in paths for number in re.findall(r"-?[\d.]+", path)]
    assert all(0 <= number <= 720 for number in numbers)


def test_page_has_the_table_and_escapes_what_it_shows():
    page = learning_page(LEARNING)
    assert '<th scope="row">re&lt;size</th><td>0.500</td><td>0.125</td><td>75.0 %</td><td>30.0 %</td>' in page
    assert '<th scope="row">seed</th><td class="left">&lt;7&gt;</td>' in page
    assert "<b> &" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page
