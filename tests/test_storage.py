from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from explanations import explanation, frames, on_picture, said, values
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from explainer import storage
from explainer.explanation import Explanation
from explainer.frame import Frame
from explainer_registry import ExplainerError


@settings(deadline=None, max_examples=30)
@given(
    st.lists(frames(), min_size=2, max_size=2),
    values(2, 3, 2, 4),
    st.none() | values(2, 3),
    st.lists(st.text(), min_size=3, max_size=3),
)
def test_a_file_gives_the_explanation_back(tmp_path_factory, boxes: list[Frame], maps: Tensor, scores, names):
    e = explanation(maps, names, scores=scores, frames=tuple(boxes))
    path = tmp_path_factory.mktemp("saved") / "e.npz"
    assert e.save(path) == [path]
    assert Explanation.load(path) == e


def test_pictures_are_left_behind_but_their_geometry_is_kept(tmp_path: Path):
    e = on_picture([[[1.0, 2.0]]], Image.new("RGB", (8, 4)), (2, 0, 6, 4))
    e.save(tmp_path / "e.npz")
    loaded = Explanation.load(tmp_path / "e.npz")
    assert loaded.pictures == (None,)
    assert loaded.heat().equal(e.heat())
    assert loaded.overlay().size == (8, 4)


def test_the_file_opens_without_pickle(tmp_path: Path):
    explanation(torch.ones(1, 1, 2, 2), scores=torch.tensor([[3]], dtype=torch.bfloat16)).save(tmp_path / "e.NPZ")
    with np.load(tmp_path / "e.NPZ", allow_pickle=False) as arrays:
        assert arrays["maps"].dtype == arrays["scores"].dtype == np.float32
        assert json.loads(str(arrays["json"]))["names"] == ["target 0"]


def test_a_folder_holds_a_drawing_of_each_picture_and_target(tmp_path: Path):
    names = ["a bus/../../etc", "A bus etc", "a bus etc", "日本", "?", "a" * 300]
    e = explanation(torch.rand(2, 6, 2, 2), names)
    written = e.save(str(tmp_path / "new" / "folder"))
    assert [path.relative_to(tmp_path / "new" / "folder").as_posix() for path in written] == [
        *[
            f"{picture}-{name}"
            for picture in (0, 1)
            for name in (
                "a-bus-etc.png",
                "A-bus-etc-target1.png",
                "a-bus-etc-target2.png",
                "日本.png",
                "target.png",
                f"{'a' * 60}.png",
            )
        ],
        "explanation.npz",
    ]
    assert sorted(written) == sorted((tmp_path / "new" / "folder").iterdir())
    for path, (b, t) in zip(written, np.ndindex(2, 6), strict=False):
        with Image.open(path) as drawing:
            assert np.array_equal(drawing, e.overlay(t, b))
    assert Explanation.load(tmp_path / "new" / "folder") == e


def test_pictures_are_numbered_so_that_names_sort(tmp_path: Path):
    written = explanation(torch.rand(11, 1, 2, 2)).save(tmp_path)
    assert [path.name for path in written[:2]] == ["00-target-0.png", "01-target-0.png"]
    assert written == sorted(written)


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "e.npz"
    first = explanation(torch.rand(1, 1, 2, 2))
    first.save(path)

    def interrupted(stream, **arrays):
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explanation(torch.rand(1, 1, 2, 2)).save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert Explanation.load(path) == first


def test_written_files_are_readable_by_whom_the_umask_lets(tmp_path: Path):
    (tmp_path / "plain").touch()
    [path] = explanation(torch.rand(1, 1, 2, 2)).save(tmp_path / "e.npz")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    path = tmp_path / "out"
    path.touch()
    with pytest.raises(ExplainerError) as error:
        explanation(torch.rand(1, 1, 2, 2)).save(path)
    assert said(error) == f"{str(path)!r} is a file; give a folder, or a name that ends in .npz"


def test_a_picture_for_a_name_is_refused():
    with pytest.raises(ExplainerError) as error:
        explanation(torch.rand(1, 1, 2, 2)).save("bus.png")
    assert said(error) == ("save writes a folder or an .npz file; for one drawing: e.overlay(...).save('bus.png')")


def test_nothing_to_load_is_said(tmp_path: Path):
    with pytest.raises(ExplainerError) as error:
        Explanation.load(tmp_path)
    assert said(error) == f"no explanation at {str(tmp_path / 'explanation.npz')!r}; e.save(path) writes one"


def _write_other_format(path: Path) -> None:
    np.savez(path, maps=np.ones((1, 1, 2, 2), np.float32), json=np.array('{"format": 9}'))


def test_a_picture_is_no_explanation(tmp_path: Path):
    path = tmp_path / "0-espresso.png"
    Image.new("RGB", (4, 4)).save(path)
    with pytest.raises(ExplainerError) as error:
        Explanation.load(path)
    assert said(error) == f"{str(path)!r} is not an explanation that e.save wrote: no .npz file"


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.write_bytes(b"PK\x03\x04 half a file"), "File is not a zip file"),
        (lambda path: path.touch(), "No data left in file"),
        (lambda path: np.savez(path, other=np.ones(1)), "it holds no 'json'"),
        (_write_other_format, "it has format 9, this version reads format 1"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, write, reason: str):
    path = tmp_path / "e.npz"
    write(path)
    with pytest.raises(ExplainerError) as error:
        Explanation.load(path)
    assert said(error) == f"{str(path)!r} is not an explanation that e.save wrote: {reason}"
