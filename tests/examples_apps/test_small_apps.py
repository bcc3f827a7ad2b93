"""Pipelines, photographs and tickets: what their functions give, by hand and on data that they were not made with."""

import io

import msgspec
import numpy as np
import pytest
import skimage.data
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def example_of(app, workflow):
    return msgspec.msgpack.decode(app.workflows[workflow].spec.example)


class TestPipelines:
    @pytest.fixture
    def app(self, load):
        return load("pipelines")

    @pytest.fixture
    def unseen(self):
        """The quarter of the digits that `train.py` neither trained with nor chose the threshold by."""
        digits = load_digits()
        _, rest, _, labels = train_test_split(digits.data, digits.target, test_size=0.5, random_state=0)
        _, unseen, _, labels = train_test_split(rest, labels, test_size=0.5, random_state=0)
        return unseen, labels

    def test_the_first_digit_is_a_zero_and_the_small_network_is_sure(self, app):
        found = app.workflows["cascade"](example_of(app, "cascade"))
        assert found == {"digit": 0, "confidence": pytest.approx(0.9946, abs=0.001), "by": "small"}

    def test_the_cascade_reads_as_well_as_the_large_network_and_asks_it_for_a_third(self, app, unseen):
        small, large = app.functions["small"], app.functions["large"]
        items = [app.functions["prepare"](digit.tolist()) for digit in unseen[0]]
        first = small(items)
        second = large([item for item in first if max(item["found"]) < 0.85])
        sure = [item for item in first if max(item["found"]) >= 0.85]
        assert len(second) / len(items) == pytest.approx(0.32, abs=0.01)
        assert (
            app.workflows["cascade"]([16 * pixel for pixel in second[0]["digit"]])["by"] == second[0]["by"] == "large"
        )
        found = {tuple(item["digit"]): np.argmax(item["found"]) for item in (*sure, *second)}
        right = sum(found[tuple(item["digit"])] == label for item, label in zip(items, unseen[1], strict=True))
        alone = sum(np.argmax(one["found"]) == label for one, label in zip(large(items), unseen[1], strict=True))
        assert right / 450 == pytest.approx(0.971, abs=0.005)
        assert alone / 450 == pytest.approx(0.971, abs=0.005)

    def test_the_surer_of_two_networks_counts(self, app):
        blank = app.functions["prepare"]([0] * 64)  # nothing is sure of it
        unsure = {**blank, "found": [0.1] * 10, "by": "small"}
        certain = {**blank, "found": [0.0] * 9 + [1.0], "by": "small"}
        found = app.functions["large"]([unsure, certain])
        assert [one["by"] for one in found] == ["large", "small"]

    def test_the_ensemble_averages_its_three_models(self, app):
        rows = {"small": [0.6, 0.4], "large": [0.1, 0.9], "linear": [0.2, 0.8]}
        found = app.functions["average"]([{"found": row, "by": name} for name, row in rows.items()])
        assert found == {"digit": 1, "confidence": 0.7, "votes": {"small": 0, "large": 1, "linear": 1}}
        assert app.workflows["ensemble"](example_of(app, "ensemble"))["digit"] == 0

    def test_what_is_no_digit_is_refused(self, app):
        with pytest.raises(ValueError, match="64 numbers from 0 to 16"):
            app.functions["prepare"]([17] * 64)


class TestPhotos:
    @pytest.fixture
    def app(self, load):
        return load("photos")

    @pytest.mark.parametrize("label", ["brick", "grass", "gravel"])
    def test_a_patch_that_was_not_trained_with_is_known(self, app, label):
        patch = getattr(skimage.data, label)()[100:200, 400:500]  # training used the columns up to 340
        found = app.workflows["label"](png(patch))
        assert (found["label"], found["needs_person"]) == (label, False)

    def test_the_example_is_gravel_and_may_be_base64(self, app):
        found = app.workflows["label"](example_of(app, "label"))
        assert found == {"label": "gravel", "probability": pytest.approx(0.991, abs=0.002), "needs_person": False}

    @pytest.mark.parametrize(
        ("network", "forest", "expected"),
        [
            ([0.9, 0.1, 0.0], [0.7, 0.2, 0.1], ("brick", 0.8, False)),
            ([0.6, 0.4, 0.0], [0.6, 0.2, 0.2], ("unsure", 0.6, True)),
            ([0.1, 0.9, 0.0], [0.6, 0.4, 0.0], ("unsure", 0.65, True)),
        ],
        ids=["both-sure", "both-unsure", "of-two-minds"],
    )
    def test_models_that_are_unsure_or_disagree_leave_it_to_a_person(self, app, network, forest, expected):
        found = app.functions["join"]([network, forest])
        label, probability, needs_person = expected
        assert app.stage("label/join").choose(found) == ("false" if needs_person else "true")
        if needs_person:
            found = app.functions["ask_person"](found)
        assert app.functions["answer"](found) == {
            "label": label,
            "probability": probability,
            "needs_person": needs_person,
        }

    @pytest.mark.parametrize(
        ("photo", "message"),
        [
            (b"no picture", "these 10 bytes are no PNG"),
            ({"jpeg": "x"}, "send a PNG"),
            ({"png": "abc"}, "send a PNG"),
            ("small", "at least 64 x 64 pixels; got 63 x 80"),
        ],
        ids=["other-bytes", "other-key", "no-base64", "too-small"],
    )
    def test_what_is_no_photograph_is_refused(self, app, photo, message):
        photo = png(np.zeros((80, 63), np.uint8)) if photo == "small" else photo
        with pytest.raises(ValueError, match=message):
            app.functions["preprocess"](photo)


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


class TestTickets:
    @pytest.mark.parametrize(
        ("text", "queue", "about"),
        [
            ("You charged me 42 euros twice, refund it please.", "billing", "about 42 euros today"),
            ("The package DE-1234 came damaged.", "delivery", "about DE-1234 today"),
            ("The update fails with error 502 on my device", "technical", "about error 502 today"),
            ("Do you sell umbrellas?", "person", "Somebody will write to you today"),
        ],
    )
    def test_a_ticket_goes_where_it_belongs(self, load, text, queue, about):
        found = load("tickets").workflows["answer-ticket"](text)
        assert found["queue"] == queue
        assert about in found["reply"]

    def test_a_batch_gives_each_what_it_gets_alone(self, load):
        app = load("tickets")
        texts = ["Where is my parcel?", "", "my invoice is wrong, error 404"]
        read, sort = app.functions["vectorise"], app.functions["classify"]
        assert sort(read(texts)) == [sort(read([text]))[0] for text in texts]
        assert read([""])[0]["words"] == []

    def test_what_is_no_text_is_refused(self, load):
        with pytest.raises(ValueError, match="a ticket is a text; got int"):
            load("tickets").functions["vectorise"]([7])
