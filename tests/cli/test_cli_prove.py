"""`explainer inspect --prove`."""

from __future__ import annotations

import re

import pytest

from explainer.layout import Grid

MODEL = ("inspect", "timm:test_resnet", "--set", "model.pretrained=false", "--set", "model.size=96")


def test_the_proof_follows_the_report(explainer) -> None:
    report, proved = explainer(*MODEL), explainer(*MODEL, "--prove")

    assert (proved.exit_code, proved.stderr) == (0, "")
    assert proved.stdout.startswith(report.stdout)
    told = re.sub(r"\d\.\d\d", "#", proved.stdout.removeprefix(report.stdout))
    assert told.splitlines() == [
        "layout       holds: each corner of the picture changes the map most in that corner (contrast: 1 is none, 4 "
        "the most)",
        "  96 x 96    layer4: 3 x 3 cells, NCHW: holds, contrast # to #",
        "  96 x 64    layer4: 3 x 2 cells, NCHW: holds, contrast # to #",
        "  64 x 96    layer4: 2 x 3 cells, NCHW: holds, contrast # to #",
    ]


def test_a_proof_that_fails_is_told_and_ends_with_one(explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Grid.to_map
    monkeypatch.setattr(Grid, "to_map", lambda grid, output: right(grid, output).flip(3))

    result = explainer(*MODEL, "--prove")

    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (1, "")
    assert lines[-4] == "layout       fails: the map does not lie on the picture as it is said to"
    assert re.sub(r"\d\.\d\d", "#", lines[-3]) == (
        "  96 x 96    layer4: 3 x 3 cells, NCHW: fails: changing the top left corner of the picture changes it most at "
        "its top right (# times the usual, against # at its top left)"
    )


def test_a_method_is_shown_before_the_proof(explainer) -> None:
    lines = explainer(*MODEL, "--method", "cam", "--prove").stdout.splitlines()

    assert lines[-6:-4] == ["method cam fits", "  no settings"]
