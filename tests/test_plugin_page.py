"""The plugin of docs/write-a-plugin.md keeps what every method must, and computes what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
import torch

import explainer
from explainer.testing import MethodContract, tiny_cnn
from explainer_registry import Registry, use

PAGE = Path(__file__).parents[1] / "docs" / "write-a-plugin.md"


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's two modules, as a package that is found."""
    face, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    package = tmp_path_factory.mktemp("site") / "explainer_input_x_gradient"
    package.mkdir()
    (package / "__init__.py").write_text(face)
    (package / "input_x_gradient.py").write_text(code)
    points = [
        *entry_points(group="explainer"),
        EntryPoint("input_x_gradient", "explainer_input_x_gradient", "explainer"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(package.parent)
        with use(Registry.discover(entry_points=points, strict=True)):
            yield


class TestThePage(MethodContract):
    method = "input_x_gradient"


def test_it_is_input_times_gradient() -> None:
    model = tiny_cnn(dtype=torch.float64)
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    maps = explainer.wrap(model, size=32)(images, [1, 2], method="input_x_gradient").maps
    for place, target in enumerate([1, 2]):
        x = images.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x)[:, target].sum(), x)
        torch.testing.assert_close(maps[:, place], (x.detach() * slope).sum(dim=1).float())
