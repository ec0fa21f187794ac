"""A whole benchmark: what is asked, what is measured, what fails, and that it is the same again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.squares import COLOURS, Squares, SquaresConfig, Tiny, tiny
from explainer.bench import BenchRun, Results, Truth, make_bench, run
from explainer.bench.controls import Blind, centre, random
from explainer.bench.running import Bench
from explainer.bench.statistics import ALL, figures
from explainer.explain import Explainer
from explainer.heat import seen
from explainer_registry import ExplainerError, registry

pytestmark = pytest.mark.usefixtures("squares")

METRICS = ("average_precision", "energy", "iou", "iou_best", "pointing")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def described(**fields: Any) -> BenchRun:
    plain = {"encoders": ["tiny"], "data": "squares", "methods": ["finds"], "metrics": METRICS}
    return make_bench({**plain, **fields})


def results(**fields: Any) -> Results:
    return run(described(**fields))


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(ExplainerError) as caught:
        call()
    return str(caught.value)


class TestFigures:
    @pytest.mark.parametrize("width", [32, 48], ids=["whole", "cropped"])
    @pytest.mark.parametrize("method", ["gradcam", "gem"])
    def test_they_are_those_of_each_map_measured_by_itself(self, method: str, width: int) -> None:
        found = results(methods=[method], data={"name": "squares", "width": width}, metrics=["iou_best", "energy"])

        explainer = Explainer(tiny(Tiny()))
        explainer.encoder.resolve(COLOURS)  # texts that are embedded together are rounded together
        catalogue = registry().metrics
        values: dict[str, list[list[float]]] = {"iou_best": [], "energy": []}
        pictures, groups = [], []
        for number, sample in enumerate(Squares(SquaresConfig(width=width))):
            explanation = explainer(sample.picture, list(sample.masks), method=method)
            valid = seen(explanation.frames, (32, width), torch.device("cpu"))[0, 0]
            assert int(valid.sum()) == 32 * 32
            for label, mask in sample.masks.items():
                truth = Truth(torch.tensor(mask) & valid, valid)
                heat = explanation[label].heat()[0, 0]
                assert 0 < int(truth.mask.sum()) < int(mask.sum()) + 1
                for name, rows in values.items():
                    rows.append(catalogue.load(name)(catalogue.get(name).schema(), heat, truth).reshape(-1).tolist())
                pictures.append(number)
                groups.append(sample.group)
        for name, rows in values.items():
            assert found["tiny"][method].figures[name] == figures(np.array(rows), pictures, groups, 0)
        assert found["tiny"].objects == found["tiny"][method].objects == len(pictures) == 12

    def test_controls_stand_beside_the_methods(self) -> None:
        found = results(metrics=["energy"], seed=7)["tiny"]

        energy = registry().metrics.load("energy")
        for name, control in (("random", random), ("centre", centre)):
            rows, pictures, groups = [], [], []
            for number, sample in enumerate(Squares()):
                frame = tiny(Tiny()).frame(sample.picture)
                for label, mask in sample.masks.items():
                    truth = Truth(torch.tensor(mask), torch.ones(32, 32, dtype=torch.bool))
                    rows.append([float(energy(None, control(Blind(7, number, label, frame, (4, 4))), truth))])
                    pictures.append(number)
                    groups.append(sample.group)
            assert found[name].figures["energy"] == figures(np.array(rows), pictures, groups, 7)
            assert found[name].control
            assert not found[name].above_controls

    def test_the_best_method_comes_first_and_is_marked(self) -> None:
        found = results(methods=["constant", "finds", "gem"])["tiny"]

        assert found.methods[0].name == "finds"
        assert found.methods[0].figures["average_precision"][ALL].mean == pytest.approx(1)
        assert found.methods[0].above_controls == set(METRICS)
        means = [method.figures["average_precision"][ALL].mean for method in found.methods]
        assert means == sorted(means, reverse=True)
        assert {method.name for method in found.methods} == {"constant", "finds", "gem", "random", "centre"}

    def test_an_interval_that_touches_that_of_a_control_is_not_marked(self) -> None:
        found = results(methods=["finds", "gem", "gradcam", "similarity", "cam", "draws"])["tiny"]

        higher_by_chance = 0
        for method in found.methods:
            for metric, by_group in method.figures.items():
                highs = [found[control].figures[metric][ALL].high for control in ("random", "centre")]
                above = by_group[ALL].low > max(highs)
                assert (metric in method.above_controls) == above
                higher_by_chance += by_group[ALL].mean > max(highs) and not above
        assert higher_by_chance

    def test_the_first_metric_says_which_is_the_best(self) -> None:
        one, other = (results(methods=["gem"], metrics=order)["tiny"] for order in (["iou", "energy"], ["energy"]))

        for found, metric in ((one, "iou"), (other, "energy")):
            means = [method.figures[metric][ALL].mean for method in found.methods]
            assert means == sorted(means, reverse=True)

    def test_constant_maps_are_counted_and_at_chance(self) -> None:
        found = results(methods=["constant"], metrics=["pointing", "average_precision"])["tiny"]["constant"]

        areas = [mask.mean() for sample in Squares() for mask in sample.masks.values()]
        assert (found.constant, found.objects) == (12, 12)
        for metric in ("pointing", "average_precision"):
            assert found.figures[metric][ALL].mean == pytest.approx(np.mean(areas))

    def test_groups_are_shown(self) -> None:
        found = results(metrics=["iou_best"])["tiny"]["finds"].figures["iou_best"]

        assert list(found) == [ALL, "1 of 3", "2 of 3", "3 of 3"]
        assert len({figure.setting for figure in found.values()}) == 1

    def test_recognition_is_of_all_labels(self) -> None:
        found = results(data={"name": "squares", "labels": ["red", "green", "blue", "pink"]})["tiny"].recognition

        explainer = Explainer(tiny(Tiny()))
        explanations = [explainer(sample.picture, [*COLOURS, "pink"], method="gradcam") for sample in Squares()]
        best = [explanation.names[int(explanation.scores[0].argmax())] for explanation in explanations]
        hits = [label in sample.masks for label, sample in zip(best, Squares(), strict=True)]
        assert (found.labels, found.shown) == (4, 3)
        assert found.top[ALL].mean == np.mean(hits)
        assert list(found.top) == [ALL, "1 of 3", "2 of 3", "3 of 3"]


class TestSameAgain:
    def test_everything_but_times_is_the_same(self, tmp_path: Path) -> None:
        for folder in ("one", "two"):
            torch.rand(3)  # what else draws random numbers changes nothing
            results(methods=["draws", "gradcam", "gem"], seed=3).save(tmp_path / folder)

        for name in ("scores.md", "scores.csv", "scores.json"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

    def test_what_else_is_measured_changes_nothing(self) -> None:
        many = results(methods=["constant", "draws", "gradcam"])["tiny"]
        few = results(methods=["draws"])["tiny"]

        for name in ("draws", "random", "centre"):
            assert many[name].figures == few[name].figures

    def test_another_seed_changes_what_is_random(self) -> None:
        one, other = (results(methods=["draws"], seed=seed)["tiny"] for seed in (0, 1))

        for name in ("draws", "random"):
            assert one[name].figures["energy"][ALL].mean != other[name].figures["energy"][ALL].mean
        assert one["centre"].figures["energy"][ALL].mean == other["centre"].figures["energy"][ALL].mean

    def test_the_users_random_numbers_go_on(self) -> None:
        torch.manual_seed(5)
        results(methods=["draws"], pictures=2)
        after = torch.rand(3)

        torch.manual_seed(5)
        assert torch.equal(torch.rand(3), after)


class TestAsking:
    def test_all_methods_that_fit(self) -> None:
        found = results(methods=None, pictures=2)["tiny"]

        fitting = {fit.name for fit in Explainer(tiny(Tiny())).methods() if fit.fits}
        needing_settings = {"breaks", "stopped"}
        assert {"gem", "gradcam", "finds", *needing_settings} <= fitting
        assert "classy" not in fitting
        assert {method.name for method in found.methods if not method.control} == fitting - needing_settings

    def test_a_method_that_does_not_fit_is_refused_by_name(self) -> None:
        text = message(lambda: results(methods=["finds", "classy"]))

        assert text.startswith("method 'classy' does not fit tiny: it has no classes; methods that fit: ")

    def test_settings_are_part_of_the_name(self) -> None:
        found = results(methods=["gem", {"name": "gem", "depth": 2}], pictures=2)["tiny"]

        assert {method.name for method in found.methods if not method.control} == {"gem", "gem depth=2"}
        assert found["gem depth=2"].settings["depth"] == 2

    def test_only_the_first_pictures(self) -> None:
        found = results(pictures=2)

        assert found.pictures == 2
        assert found["tiny"].objects == 3
        assert results(pictures=99).pictures == 6

    def test_unknown_labels_are_left_out_and_named(self) -> None:
        model = {"name": "tiny", "reads": ["red"]}

        found = results(encoders=[model])["tiny"]

        assert found.objects == found["finds"].objects == 6
        assert found.unknown == ("green", "blue")
        assert found.warnings == (
            "tiny cannot be asked about 2 labels, which are left out: 'green', 'blue' (of the first it says: 'green' "
            "is no word that this model reads)",
        )
        assert found.recognition.labels == 1

    def test_templates(self) -> None:
        plain, framed = (results(methods=["gem"], templates=text)["tiny"] for text in (None, "a {}"))

        energies = [found["gem"].figures["energy"][ALL].mean for found in (plain, framed)]
        assert abs(energies[0] - energies[1]) > 1e-3
        assert plain.recognition != framed.recognition

    def test_two_models_beside_each_other(self) -> None:
        found = results(encoders=["tiny", {"name": "tiny", "seed": 1}], methods=["gem"])

        assert [encoder.name for encoder in found.encoders] == ["tiny", "tiny-2"]
        assert found["tiny"]["gem"].figures != found["tiny-2"]["gem"].figures
        assert found["tiny"]["random"].figures == found["tiny-2"]["random"].figures
        assert found["tiny"]["gem"] == results(methods=["gem"])["tiny"]["gem"]
        assert [(time.encoder, time.method) for time in found.times] == [("tiny", "gem"), ("tiny-2", "gem")]

    def test_a_dataset_of_ones_own(self) -> None:
        found = run(described(data="stickers"), Squares(SquaresConfig(count=2)))

        assert (found.dataset, found.pictures) == ("squares", 2)
        assert found.settings["data"] == {"name": "squares"}

    def test_an_empty_dataset(self) -> None:
        empty = Squares(SquaresConfig(count=0))

        assert message(lambda: run(described(), empty)) == "the dataset 'squares' holds no pictures"

    def test_every_step_is_told(self) -> None:
        bench, steps = Bench(described(encoders=["tiny", {"name": "tiny", "seed": 1}], pictures=3)), []

        bench.results(lambda: steps.append(1))

        assert len(steps) == bench.steps == 6

    def test_times_are_in_forwards(self) -> None:
        found = results(methods=["finds", "refuses"])

        (time,) = found.times
        assert (time.encoder, time.method, time.calls) == ("tiny", "finds", 6)
        assert time.ratio == time.call / time.forward > 0
        assert found.time("tiny", "finds") is time
        assert found.time("tiny", "random") is None


class TestFailing:
    def test_a_failure_is_counted_and_the_rest_measured(self) -> None:
        found = results(methods=["dislikes_two", "finds"])
        method = found["tiny"]["dislikes_two"]

        assert found.failed
        assert method.failures == {"two squares are too many": ("square-1", "square-4")}
        assert (method.failed, method.objects, found["tiny"]["finds"].objects) == (2, 8, 12)
        assert list(method.figures["energy"]) == [ALL, "1 of 3", "3 of 3"]
        assert not results().failed

    def test_a_method_that_always_fails_has_no_figures_and_comes_last(self) -> None:
        found = results(methods=["refuses", "constant"])["tiny"]

        assert found.methods[-1].name == "refuses"
        assert found.methods[-1].figures == {}
        assert found.methods[-1].failed == 6

    def test_several_maps_for_a_label_cannot_be_measured(self) -> None:
        (reason,) = results(methods=["two_maps"])["tiny"]["two_maps"].failures

        assert reason == ("it gives 2 maps for each label, and one can be measured; say which with its settings")

    def test_a_bug_is_not_hidden(self) -> None:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            results(methods=[{"name": "breaks", "needed": 1}])

    def test_a_picture_that_the_model_cannot_take_fails_for_every_method(self) -> None:
        found = results(methods=["gem", "finds"], data={"name": "squares", "thin": 1})["tiny"]

        for method in ("gem", "finds"):
            (reason,) = found[method].failures
            assert found[method].failures[reason] == ("thin",)
            assert reason.startswith("a picture 1 wide and 300000 high would be scaled to ")
        assert found["random"].objects == found["gem"].objects == 10

    def test_where_no_picture_can_be_taken_there_is_nothing_to_say(self) -> None:
        text = message(lambda: results(data={"name": "squares", "thin": 0}, pictures=1))

        assert text.startswith("tiny could not be run on any picture: a picture 1 wide and 300000 high would")

    @pytest.mark.parametrize(
        ("metric", "said"),
        [
            *(
                (
                    name,
                    f"metric '{name}', of 'red' in sample 'square-0': it has to give a value in 0..1, or a row of such "
                    f"values; it gave {got}",
                )
                for name, got in (("two", "2.0"), ("square", "shape [2, 2]"), ("nan", "[0.5, nan]"))
            ),
            ("grows", "metric 'grows' gave 1 values and now 11; they must be as many each time"),
        ],
    )
    def test_a_metric_that_breaks_its_promise(self, metric: str, said: str) -> None:
        assert message(lambda: results(metrics=[metric])) == said

    def test_results_need_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        text = message(lambda: results(out=tmp_path / "file"))

        assert text == f"'{tmp_path / 'file'}' is a file; the results need a folder"
