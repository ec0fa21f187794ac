"""What a model can be asked, what a dataset has to give, and what counts on a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from bench.squares import Squares, SquaresConfig, Tiny, tiny
from explainer.bench import Sample
from explainer.bench.asking import check, objects, vocabulary
from explainer.frame import Frame
from explainer_registry import ExplainerError


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(ExplainerError) as caught:
        call()
    return str(caught.value)


def masked(**rows: tuple[int, int, int, int]) -> Sample:
    """A picture 8 wide and 4 high, and a mask from left, top, right and bottom for each label."""
    masks = {label: np.zeros((4, 8), dtype=bool) for label in rows}
    for label, (left, top, right, bottom) in rows.items():
        masks[label][top:bottom, left:right] = True
    return Sample("one", Image.new("RGB", (8, 4)), masks)


class TestVocabulary:
    def test_labels_are_asked_as_they_are(self) -> None:
        encoder = tiny(Tiny())

        found = vocabulary(encoder, Squares(), None)

        assert list(found.targets) == ["red", "green", "blue"]
        assert found.unknown == {}
        (expected,) = encoder.resolve(["green"])
        assert found.directions.shape == (1, 3, 16)
        assert found.directions[0, 1].tolist() == pytest.approx(expected.direction.tolist(), abs=1e-6)

    def test_templates_are_used(self) -> None:
        encoder = tiny(Tiny())

        found = vocabulary(encoder, Squares(), "one {}")

        (expected,) = encoder.resolve(["red"], "one {}")
        assert found.directions[0, 0].tolist() == pytest.approx(expected.direction.tolist(), abs=1e-6)

    def test_those_that_are_not_known_are_told(self) -> None:
        found = vocabulary(tiny(Tiny(reads=("red", "blue"))), Squares(), None)

        assert list(found.targets) == ["red", "blue"]
        assert found.unknown == {"green": "'green' is no word that this model reads"}

    def test_one_has_to_be_known(self) -> None:
        assert message(lambda: vocabulary(tiny(Tiny(reads=())), Squares(), None)) == (
            "tiny cannot be asked about any of the 3 labels of the dataset 'squares'; of 'red' it says: 'red' is no "
            "word that this model reads"
        )

    def test_a_dataset_has_labels(self) -> None:
        assert message(lambda: vocabulary(tiny(Tiny()), Squares(SquaresConfig(labels=())), None)) == (
            "the dataset 'squares' has no labels, so there is nothing to ask"
        )


class TestSamples:
    SAMPLE = masked(cat=(0, 0, 2, 2))

    def test_a_good_one(self) -> None:
        check(replace(self.SAMPLE, valid=np.ones((4, 8), dtype=bool)), {"cat", "dog"}, "pets")

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            (
                {"masks": {"cat": np.ones((8, 4), dtype=bool)}},
                "the mask of 'cat' has to be bool of the picture's height and width [4, 8]; it is bool of shape [8, 4]",
            ),
            (
                {"masks": {"cat": np.ones((4, 8), dtype=np.uint8)}},
                "the mask of 'cat' has to be bool of the picture's height and width [4, 8]; it is uint8 of shape "
                "[4, 8]",
            ),
            (
                {"valid": np.ones(4, dtype=bool)},
                "valid has to be bool of the picture's height and width [4, 8]; it is bool of shape [4]",
            ),
            (
                {"masks": {"cat": np.zeros((4, 8), dtype=bool)}},
                "the mask of 'cat' is empty; leave out what is not in the picture",
            ),
            ({"masks": {"cow": np.ones((4, 8), dtype=bool)}}, "'cow' is not among the dataset's labels"),
        ],
    )
    def test_a_bad_one(self, fields: dict[str, Any], said: str) -> None:
        bad = replace(self.SAMPLE, **fields)

        assert message(lambda: check(bad, {"cat"}, "pets")) == f"the dataset 'pets', sample 'one': {said}"

    def test_a_picture_that_is_stored_turned(self) -> None:
        bad = replace(self.SAMPLE, picture=self.SAMPLE.picture.copy())
        bad.picture.getexif()[ExifTags.Base.Orientation] = 6

        assert message(lambda: check(bad, {"cat"}, "pets")) == (
            "the dataset 'pets', sample 'one': the picture is stored turned (EXIF orientation 6), and masks lie on "
            "what is seen; give ImageOps.exif_transpose(picture)"
        )


class TestObjects:
    WHOLE = Frame.whole((8, 4))
    MIDDLE = Frame((8, 4), (2, 0, 6, 4))

    def test_a_whole_picture(self) -> None:
        sample = masked(cat=(0, 0, 2, 2), dog=(5, 0, 8, 4))

        found = objects(sample, {"cat": 0, "dog": 0}, self.WHOLE)

        assert list(found.truths) == ["cat", "dog"]
        assert (found.unseen, found.filling) == (0, 0)
        assert np.array_equal(found.truths["dog"].mask, sample.masks["dog"])
        assert bool(found.truths["dog"].valid.all())

    def test_what_cannot_be_asked_is_no_object(self) -> None:
        found = objects(masked(cat=(0, 0, 2, 2), dog=(5, 0, 8, 4)), {"dog": 0}, self.WHOLE)

        assert (list(found.truths), found.unseen, found.filling) == (["dog"], 0, 0)

    def test_only_what_the_model_sees_counts(self) -> None:
        found = objects(masked(cat=(0, 0, 3, 2)), {"cat": 0}, self.MIDDLE)

        truth = found.truths["cat"]
        assert truth.valid.sum(dim=0).tolist() == [0, 0, 4, 4, 4, 4, 0, 0]
        assert truth.mask.nonzero().tolist() == [[0, 2], [1, 2]]

    def test_only_what_the_dataset_is_sure_of_counts(self) -> None:
        valid = np.ones((4, 8), dtype=bool)
        valid[0] = False
        sample = replace(masked(cat=(0, 0, 3, 2)), valid=valid)

        truth = objects(sample, {"cat": 0}, self.MIDDLE).truths["cat"]

        assert truth.valid.sum(dim=0).tolist() == [0, 0, 3, 3, 3, 3, 0, 0]
        assert truth.mask.nonzero().tolist() == [[1, 2]]
        assert not valid[0].any()
        assert valid[1:].all()

    def test_what_is_not_seen_and_what_is_everywhere_are_left_out(self) -> None:
        sample = masked(cat=(0, 0, 2, 4), dog=(6, 0, 8, 1), cow=(1, 0, 7, 4), pig=(3, 1, 4, 2))

        found = objects(sample, dict.fromkeys(sample.masks), self.MIDDLE)

        assert (list(found.truths), found.unseen, found.filling) == (["pig"], 2, 1)
