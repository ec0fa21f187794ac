"""The plugin of docs/plugins/view.md keeps what every view must, and draws what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest
from explanations import on_picture
from PIL import Image

from explainer.testing import ViewContract
from explainer_registry import Registry, use

PAGE = Path(__file__).parents[1] / "docs" / "plugins" / "view.md"


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's two modules, as a package that is found."""
    face, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    package = tmp_path_factory.mktemp("site") / "explainer_peak"
    package.mkdir()
    (package / "__init__.py").write_text(face)
    (package / "peak.py").write_text(code)
    points = [*entry_points(group="explainer"), EntryPoint("peak", "explainer_peak", "explainer")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(package.parent)
        with use(Registry.discover(entry_points=points, strict=True)):
            yield


class TestThePage(ViewContract):
    view = "peak"


def test_the_cross_is_at_the_hottest_pixel() -> None:
    maps = np.zeros((9, 9))
    maps[2, 6] = 1
    drawn = np.asarray(on_picture([maps.tolist()], Image.new("RGB", (9, 9))).draw("peak", radius=1))
    red = np.argwhere((drawn == (255, 0, 0)).all(-1))
    assert np.abs(red.mean(0) - (2, 6)).max() <= 0.5
