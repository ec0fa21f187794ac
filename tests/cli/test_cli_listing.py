"""The commands that list what is installed."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path

import pytest
from rich.console import Console

from explainer.cli.output import draw, progress
from explainer_registry import Registry, registry, use

SCRIPT = Path(sys.executable).with_name("explainer")


@pytest.fixture
def broken():
    """The installed plugins, one of them switched off, and one that cannot be imported."""
    extra = EntryPoint("broken", "there_is_no_such_module", "explainer")
    points = [*entry_points(group="explainer"), extra]
    with use(Registry.discover(disabled=["cam"], entry_points=points)):
        yield


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


def test_methods_are_listed_in_aligned_columns(explainer) -> None:
    result = explainer("methods")

    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert columns(lines[0]) == ["method", "needs", "summary", "reference", "from"]
    assert [line.split()[0] for line in lines[1:]] == list(registry().methods)
    spec = registry().methods.get("gradcam")
    assert columns(lines[3]) == [
        "gradcam",
        "features, gradient",
        spec.summary,
        "Selvaraju et al. 2017, arXiv:1610.02391",
        f"vision-explainer {version('vision-explainer')}",
    ]
    first = zip(lines[:3], ["needs", "features", "attention"], strict=True)
    assert len({line.index(word) for line, word in first}) == 1


def test_encoders_are_listed(explainer) -> None:
    lines = explainer("encoders").stdout.splitlines()

    assert columns(lines[0]) == ["encoder", "takes modules of", "summary", "from"]
    assert [columns(line)[:2] for line in lines[1:]] == [
        ["demo", "none"],
        ["open_clip", "open_clip"],
        ["stickers", "none"],
        ["timm", "timm"],
        ["torch", "torch"],
        ["transformers", "transformers"],
    ]


def test_scores_are_listed(explainer) -> None:
    lines = explainer("scores").stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["score", "log_prob", "logit", "prob"]


def test_metrics_are_listed(explainer) -> None:
    lines = explainer("metrics").stdout.splitlines()

    assert columns(lines[0]) == ["metric", "summary", "reference", "from"]
    assert [line.split()[0] for line in lines[1:]] == ["average_precision", "energy", "iou", "iou_best", "pointing"]
    assert columns(lines[5])[1:3] == [
        "Whether the hottest pixel is on the object.",
        "Zhang et al. 2018, arXiv:1608.00507; tolerance 0",
    ]


def test_datasets_are_listed(explainer) -> None:
    lines = explainer("datasets").stdout.splitlines()

    assert columns(lines[0]) == ["dataset", "summary", "from"]
    assert [line.split()[0] for line in lines[1:]] == ["coco", "stickers", "voc"]
    assert columns(lines[2])[1] == registry().datasets.get("stickers").summary


def test_plugins_are_listed_with_what_became_of_them(explainer, broken) -> None:
    result = explainer("plugins")

    lines = result.stdout.splitlines()
    own = version("vision-explainer")
    assert columns(lines[0]) == ["plugin", "version", "state", "offers"]
    rows = {columns(line)[0]: columns(line)[1:] for line in lines[1:-2]}
    assert rows["vision-explainer:cam"] == [own, "off", "none"]
    assert rows["vision-explainer:similarity"] == [own, "on", "method similarity"]
    assert rows["there-is-no-such-module:broken"] == ["(no version)", "failed", "none"]
    assert lines[-2:] == [
        f"off: vision-explainer {own} (cam): switched off by --disable-plugin or EXPLAINER_DISABLE_PLUGINS",
        "problem: there-is-no-such-module (no version) (broken): ModuleNotFoundError: "
        "No module named 'there_is_no_such_module'",
    ]


@pytest.mark.parametrize("command", ["methods", "encoders", "scores", "metrics", "datasets", "views"])
def test_a_list_warns_of_plugins_that_failed(explainer, broken, command: str) -> None:
    result = explainer(command)

    assert result.exit_code == 0
    assert result.stderr == (
        "warning: there-is-no-such-module (no version) (broken): ModuleNotFoundError: "
        "No module named 'there_is_no_such_module'\n"
    )


def test_a_method_of_a_plugin_that_is_off_is_explained(explainer, broken) -> None:
    result = explainer("explain", "cat.jpg", "--model", "demo", "--method", "cam")

    assert result.exit_code == 2
    assert result.stderr == (
        "Error: no method named 'cam'; the plugin of that name is switched off: "
        f"vision-explainer {version('vision-explainer')} (cam)\n"
    )


def test_an_encoder_of_a_plugin_that_is_off_is_explained(explainer) -> None:
    with use(Registry.discover(disabled=["stickers"])):
        result = explainer("explain", "cat.jpg", "--model", "stickers")

    assert result.exit_code == 2
    assert result.stderr == (
        "Error: no encoder named 'stickers'; the plugin of that name is switched off: "
        f"vision-explainer {version('vision-explainer')} (stickers)\n"
    )


def test_the_schema_is_json(explainer) -> None:
    schema = json.loads(explainer("schema").stdout)

    assert list(schema["properties"]) == [
        "pictures",
        "model",
        "targets",
        "methods",
        "score",
        "views",
        "templates",
        "out",
        "batch",
    ]


def test_a_terminal_gets_a_drawn_table() -> None:
    paper = io.StringIO()

    draw(("method", "summary"), [("gem", "of [demo] and [/b]")], Console(file=paper, width=60))

    assert [line.strip() for line in paper.getvalue().splitlines() if line.strip(" ─")] == [
        "method   summary",
        "gem      of [demo] and [/b]",
    ]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal_and_leaves_the_output_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    with progress("loading") as bar:
        bar.begin("explaining [/b]", 2)
        bar.advance()
        print("a result")
        bar.advance()

    assert capsys.readouterr().out == "a result\n"
    assert "explaining [/b]" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_no_bar_is_drawn_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("loading") as bar:
        bar.begin("explaining", 1)
        bar.advance()

    assert capsys.readouterr() == ("", "")


def test_the_version_is_told(explainer) -> None:
    assert explainer("--version").stdout == f"explainer, version {version('vision-explainer')}\n"


def test_help_names_every_command_and_the_exit_codes(explainer) -> None:
    text = explainer("--help").stdout

    assert re.findall(r"^  ([\w-]+)  ", text.partition("Commands:")[2], flags=re.MULTILINE) == [
        "bench",
        "datasets",
        "demo",
        "encoders",
        "explain",
        "inspect",
        "methods",
        "metrics",
        "new-plugin",
        "plugins",
        "run",
        "schema",
        "scores",
        "views",
    ]
    assert "Exit codes: 0 done; 1 some pictures failed" in text


class TestOwnProcess:
    """The installed command, as a shell starts it."""

    def run(self, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def test_a_plugin_is_switched_off_besides_those_of_the_environment(self, folder: Path) -> None:
        done = self.run(folder, "--disable-plugin", "cam", "methods", EXPLAINER_DISABLE_PLUGINS="similarity")

        assert (done.returncode, done.stderr) == (0, "")
        assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
            "gem",
            "key_key",
            "query_key",
            "query_query",
            "self_self",
            "value_value",
        ]

    def test_a_plugin_that_does_not_exist_cannot_be_switched_off(self, folder: Path) -> None:
        done = self.run(folder, "--disable-plugin", "cmm", "methods")

        assert (done.returncode, done.stdout) == (2, "")
        ids = ", ".join(info.id for info in registry().plugins)
        assert done.stderr == (
            f"Error: cannot switch off 'cmm': no such plugin; did you mean 'cam'? (plugins: {ids})\n"
        )

    @pytest.mark.parametrize(
        "body",
        [
            "main(['methods'], standalone_mode=False)",
            "main(['--help'], standalone_mode=False)",
            "main(['bench', '--help'], standalone_mode=False)",
            "main(['schema'], standalone_mode=False)",
            "read_run(Path('run.yaml'))",
            "main(['explain', 'a.jpg', '--model', 'dmeo'], standalone_mode=False)",
        ],
        ids=["methods", "help", "bench", "schema", "a run file", "a wrong name"],
    )
    def test_asking_and_checking_take_little_and_no_model_library(self, folder: Path, body: str) -> None:
        (folder / "run.yaml").write_text("pictures: [a.jpg]\nmodel: timm:resnet50\nmethods: [gem, gradcam]\n")
        program = f"""
import contextlib, io, sys, time
from pathlib import Path
import click
from explainer.cli import main
from explainer.config import read_run
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(click.ClickException):
    {body}
print(time.process_time(), *({{"torch", "timm", "open_clip", "numpy", "PIL"}} & set(sys.modules)))
"""
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)

        seconds, *heavy = done.stdout.split()
        assert heavy == []
        assert float(seconds) < 0.6
