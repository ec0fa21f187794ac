"""Messages that speak of Python's keywords also say how a shell writes them."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result


def test_a_setting_of_the_model(explainer: Callable[..., Result], cat: object) -> None:
    settings = ["--set", "model.pretrained=false", "--set", "model.num_classes=3"]
    result = explainer("explain", str(cat), "--model", "timm:resnet18", *settings, "--target", "tabby")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: the class names of timm:resnet18 are not known, so 'tabby' cannot be looked up; give a class index "
        "(0 to 2), or the names with wrap(..., classes=[...])\n"
        "(on the command line: --set model.classes=...)\n"
    )
