"""Run files: what they may hold, and how what is wrong in them is reported."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from explainer.config import find_pictures, make_run, read_run, run_schema
from explainer.selection import ConfigError, select

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-run.yaml"
SETTINGS = "pictures, model, targets, methods, score, views, templates, out, batch"


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    """What is said about a file, with the name of the file alone."""
    with pytest.raises(ConfigError) as caught:
        read_run(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_run_needs_only_pictures_and_a_model(folder: Path) -> None:
    run = read_run(written(folder, "pictures: [a.jpg]\nmodel: timm:resnet50\n"))

    assert run.pictures == ("a.jpg",)
    assert (run.model.name, run.model.options.model_dump()["model"]) == ("timm", "resnet50")
    assert (run.targets, run.methods, run.templates) == (None, None, None)
    assert (run.score.name, run.out, run.batch) == ("logit", Path("explanations"), 8)


def test_the_example_shows_every_field_and_the_schema_line() -> None:
    run = read_run(EXAMPLE)

    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=run.schema.json\n")
    assert list(yaml.safe_load(text)) == list(type(run).model_fields)
    assert run.targets == (281, "tiger cat")
    assert [method.name for method in run.methods or ()] == ["cam", "gradcam"]
    assert run.methods is not None
    assert run.methods[1].options.model_dump() == {"layer": None, "relu": False}


def test_numbers_in_quotes_are_text_and_lists_are_one_target(folder: Path) -> None:
    text = "pictures: [a.jpg]\nmodel: demo\ntargets: ['281', 281, [a cat, a kitten]]\n"

    assert read_run(written(folder, text)).targets == ("281", 281, ("a cat", "a kitten"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pictures: [a.jpg]\nmodel: demo\nmethod: cam\n",
            f"run.yaml:3: method: no such setting of 'run.yaml'; did you mean 'methods'? (settings: {SETTINGS})",
        ),
        (
            "model: demo\n",
            "run.yaml:1: pictures: 'run.yaml' needs this setting and has no default for it",
        ),
        (
            "pictures: a.jpg\nmodel: demo\n",
            "run.yaml:1: pictures: expected a list of at least one entry (given: 'a.jpg'); "
            "begin each entry on a line of its own with '- '",
        ),
        (
            "model: demo\npictures:\n",
            "run.yaml:2: pictures: expected a list of at least one entry (given: None); "
            "begin each entry on a line of its own with '- '",
        ),
        (
            "pictures: []\nmodel: demo\n",
            "run.yaml:1: pictures: expected a list of at least one entry (given: []); "
            "begin each entry on a line of its own with '- '",
        ),
        (
            "pictures:\n- a.jpg\n- 7\nmodel: demo\n",
            "run.yaml:3: pictures.1: Input should be a valid string (given: 7)",
        ),
        (
            "pictures: [a.jpg]\nmodel: resnet50\n",
            "run.yaml:2: model: 'resnet50' does not say which library the model comes from; put its encoder "
            "in front, such as 'open_clip:resnet50' or 'timm:resnet50' or 'transformers:resnet50' "
            "(encoders: demo, open_clip, stickers, timm, torch, transformers)",
        ),
        (
            "pictures: [a.jpg]\nmodel: tim:resnet50\n",
            "run.yaml:2: model: no encoder named 'tim'; did you mean 'timm'? (available: demo, open_clip, "
            "stickers, timm, torch, transformers)",
        ),
        (
            "pictures: [a.jpg]\nmodel:\n  name: timm\n  model: resnet50\n  pretraind: false\n",
            "run.yaml:5: model.pretraind: no such setting of 'timm'; did you mean 'pretrained'? "
            "(settings: model, pretrained, checkpoint, num_classes, classes, size, device)",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\ntargets: tiger cat\n",
            "run.yaml:3: targets: expected a list of at least one entry (given: 'tiger cat'); "
            "begin each entry on a line of its own with '- '",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\ntargets:\n  - 281\n  - no\n",
            "run.yaml:5: targets.1: a target is a class index, a class name or text, or a list of texts that "
            "are averaged (given: False); put text in quotes where YAML takes it for something else",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\ntargets: [[a cat, 3]]\n",
            "run.yaml:3: targets.0: a target is a class index, a class name or text, or a list of texts that "
            "are averaged (given: ['a cat', 3]); put text in quotes where YAML takes it for something else",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\nmethods:\n  - gme\n",
            "run.yaml:4: methods.0: no method named 'gme'; did you mean 'gem'? (available: cam, gem, "
            "gradcam, key_key, query_key, query_query, self_self, similarity, value_value)",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\nmethods:\n  - cam\n  - name: gem\n    depth: 1\n    itrations: 2\n",
            "run.yaml:6: methods.1.depth: Input should be greater than or equal to 2 (given: 1)\n"
            "run.yaml:7: methods.1.itrations: no such setting of 'gem'; did you mean 'iterations'? "
            "(settings: depth, iterations, temperature, ensemble, pos_interp)",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\nscore: probability\n",
            "run.yaml:3: score: no score named 'probability' (available: log_prob, logit, prob)",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\nbatch: 0\n",
            "run.yaml:3: batch: Input should be greater than or equal to 1 (given: 0)",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\nbatch: yes\n",
            "run.yaml:3: batch: Input should be a valid integer (given: True)",
        ),
        (
            "pictures: [a.jpg]\nmodel: demo\nout: a\nout: b\n",
            "run.yaml:4: this is not valid YAML: 'out' stands twice",
        ),
        (
            "pictures: [a.jpg\nmodel: demo\n",
            "run.yaml:2: this is not valid YAML: expected ',' or ']', but got ':'",
        ),
        ("# nothing\n", "run.yaml: the file is empty; a run needs at least 'pictures' and 'model'"),
        (
            "- a.jpg\n- b.jpg\n",
            "run.yaml:1: a run is a mapping, such as 'model: timm:resnet50', one field on a line; "
            "the file holds a list",
        ),
        ("a: \x00\n", "run.yaml:1: this is not valid YAML: it holds the character '\\x00'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(folder: Path, text: str, message: str) -> None:
    assert complaint(written(folder, text)) == message


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    assert complaint(folder / "nope.yaml") == "there is no file 'nope.yaml'"
    assert complaint(folder / ".") == f"'{folder.name}' cannot be read: Is a directory"
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert complaint(folder / "binary.yaml") == (
        "'binary.yaml' is not a text file in UTF-8: 'utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte"
    )


def test_an_anchor_may_be_merged(folder: Path) -> None:
    text = (
        "pictures: [a.jpg]\nmodel: demo\nmethods:\n  - &first {name: gradcam, relu: false}\n"
        "  - {<<: *first, relu: true}\n"
    )

    run = read_run(written(folder, text))

    assert [method.options.model_dump()["relu"] for method in run.methods or ()] == [False, True]


def test_a_run_made_in_python_is_checked_too() -> None:
    with pytest.raises(ConfigError) as caught:
        make_run({"pictures": ["a.jpg"], "model": "demo", "tragets": ["a"]})

    assert str(caught.value) == (f"tragets: no such setting of 'run'; did you mean 'targets'? (settings: {SETTINGS})")


def test_a_dump_is_read_back() -> None:
    run = read_run(EXAMPLE)

    assert make_run(run.model_dump(mode="json")) == run


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"model": "timm:resnet50"}, True),
        ({"model": {"name": "timm", "model": "resnet50", "size": [336, 448]}}, True),
        ({"targets": [1, "a", ["b", "c"]]}, True),
        ({"targets": None, "methods": None, "templates": ["a {}"]}, True),
        ({"methods": ["gem", {"name": "gradcam", "layer": "layer4"}]}, True),
        ({"score": {"name": "prob"}}, True),
        ({"model": "resnet50"}, False),
        ({"model": {"model": "resnet50"}}, False),
        ({"model": {"name": "timm", "pretraind": True}}, False),
        ({"method": ["gem"]}, False),
        ({"methods": "gem"}, False),
        ({"methods": ["gme"]}, False),
        ({"methods": [{"name": "gem", "depth": 1}]}, False),
        ({"targets": [True]}, False),
        ({"targets": [1.5]}, False),
        ({"targets": []}, False),
        ({"pictures": []}, False),
        ({"batch": 0}, False),
        ({"score": "probability"}, False),
    ],
)
def test_the_schema_says_what_the_reader_says(change: dict[str, object], valid: bool) -> None:
    schema = json.loads(run_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    values = {**yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")), **change}

    assert jsonschema.Draft202012Validator(schema).is_valid(values) is valid
    if valid:
        make_run(values)
    else:
        with pytest.raises(ConfigError):
            make_run(values)


def test_the_schema_describes_every_field_and_setting() -> None:
    schema = json.loads(run_schema())

    assert all(field.get("description") for field in schema["properties"].values())
    assert schema["required"] == ["pictures", "model"]
    assert '"relu"' in run_schema()


class TestPictures:
    @pytest.fixture
    def street(self, folder: Path) -> Path:
        for name in ("b.jpg", "a.jpg", "deep/c.jpg", "c[1].jpg", "ä b.jpg"):
            path = folder / "street" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return folder / "street"

    def found(self, street: Path, *pictures: str) -> list[str]:
        return [path.relative_to(street).as_posix() for path in find_pictures(pictures, street)]

    def test_patterns_are_sorted_and_leave_folders_out(self, street: Path) -> None:
        assert self.found(street, "*") == ["a.jpg", "b.jpg", "c[1].jpg", "ä b.jpg"]
        assert self.found(street, "**/c*.jpg") == ["c[1].jpg", "deep/c.jpg"]

    def test_paths_keep_their_order_and_come_once(self, street: Path) -> None:
        assert self.found(street, "b.jpg", "nope.jpg", "*.jpg", "./b.jpg") == [
            "b.jpg",
            "nope.jpg",
            "a.jpg",
            "c[1].jpg",
            "ä b.jpg",
        ]

    def test_a_name_with_brackets_is_no_pattern(self, street: Path) -> None:
        assert self.found(street, "c[1].jpg") == ["c[1].jpg"]

    def test_the_home_folder_is_found(self, street: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(street))
        monkeypatch.setenv("USERPROFILE", str(street))

        assert find_pictures(("~/a*.jpg",), Path("elsewhere")) == (street / "a.jpg",)

    def test_a_pattern_that_fits_nothing_is_an_error(self, street: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            find_pictures(("*.png",), street)

        assert str(caught.value) == f"no file matches '*.png' (looked in {street})"


def test_a_model_without_its_library_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        select("encoders", "vit_base_patch16_224")

    assert str(caught.value) == (
        "'vit_base_patch16_224' does not say which library the model comes from; put its encoder in front, "
        "such as 'open_clip:vit_base_patch16_224' or 'timm:vit_base_patch16_224' or "
        "'transformers:vit_base_patch16_224' "
        "(encoders: demo, open_clip, stickers, timm, torch, transformers)"
    )
