"""A method by somebody else: built, installed, found by name, upgraded, broken and switched off, as a user sees it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from explainer.newplugin import new_plugin

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "explainer-occlusion"
PHOTO = ROOT / "plugins" / "explainer_plugins" / "demo" / "photos" / "coffee.jpg"
SCRIPT = Path(sys.executable).with_name("explainer")
COARSE = ("--set", "patch=112", "--set", "stride=112")  # four runs of the model
DONE = """\
coffee.jpg, in maps/coffee
  occlusion  espresso  logit 11.36  espresso-occlusion.png
explained 1 of 1 picture
in maps: a folder for each picture with its drawings, a grid of all and the maps as .npz
next: look at maps/coffee/grid.png; in Python, the maps: explainer.Explanation.load('maps/coffee/occlusion.npz')
"""

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def run(*command: str | Path, cwd: Path, **environment: str) -> Done:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, encoding="utf-8", check=False
    )


class Environment:
    """A fresh environment, into which wheels are built and installed without a network.

    Args:
        folder: Where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        made = run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
        assert made.returncode == 0, made.stderr
        self.python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        where = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
        self.site = Path(where.stdout.strip())

    def install(self, source: Path) -> None:
        wheels = self.folder / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels)
        built = run(*build, source, cwd=self.folder)
        assert built.returncode == 0, built.stdout + built.stderr
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-deps", "--no-index")
        done = run(*pip, *wheels.glob("*.whl"), cwd=self.folder, PIP_DISABLE_PIP_VERSION_CHECK="1")
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that holds the example as it is published."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install(EXAMPLE)
    return made


@pytest.fixture
def site(installed: Environment, tmp_path: Path) -> Path:
    """What is installed there, in a folder of this test's own."""
    return shutil.copytree(installed.site, tmp_path / "site")


@pytest.fixture
def python(site: Path, tmp_path: Path) -> Run:
    """Runs Python, or the command line, where the example is installed, beside a photograph."""
    shutil.copy(PHOTO, tmp_path / "coffee.jpg")

    def call(*arguments: str | Path, command: Path = Path(sys.executable), **environment: str) -> Done:
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        return run(command, *arguments, cwd=tmp_path, PYTHONPATH=path, **environment)

    return call


@pytest.fixture
def explainer(python: Run) -> Run:
    """Runs the command line: `explainer("methods")`."""

    def call(*arguments: str, **environment: str) -> Done:
        return python(*arguments, command=SCRIPT, **environment)

    return call


def row(done: Done, name: str) -> list[str]:
    """The columns of the line of a table that begins with a name."""
    (line,) = (line for line in done.stdout.splitlines() if line.split()[0] == name)
    return re.split(r"\s{2,}", line)


class TestFound:
    """Installed is all that it takes."""

    def test_by_the_lists(self, explainer: Run) -> None:
        methods = explainer("methods")

        assert (methods.returncode, methods.stderr) == (0, "")
        assert row(methods, "occlusion") == [
            "occlusion",
            "none",
            "How much the score falls when a square covers the place; slow, and true of any model.",
            "Zeiler & Fergus 2014, arXiv:1311.2901",
            "explainer-occlusion 0.1.0",
        ]
        assert row(explainer("plugins"), "explainer-occlusion:occlusion")[1:] == ["0.1.0", "on", "method occlusion"]

    def test_by_the_command_line(self, explainer: Run, tmp_path: Path) -> None:
        done = explainer("explain", "coffee.jpg", "--model", "demo", "--method", "occlusion", *COARSE, "--out", "maps")

        assert (done.returncode, done.stdout, done.stderr) == (0, DONE, "")
        assert (tmp_path / "maps" / "coffee" / "espresso-occlusion.png").is_file()

    def test_by_a_run_file(self, explainer: Run, tmp_path: Path) -> None:
        (tmp_path / "run.yaml").write_text(
            "pictures: [coffee.jpg]\nmodel: demo\nout: maps\nmethods:\n  - {name: occlusion, patch: 112, stride: 112}\n"
        )

        done = explainer("run", "run.yaml")

        assert (done.returncode, done.stdout, done.stderr) == (0, DONE, "")

    def test_by_python(self, python: Run) -> None:
        done = python(
            "-c",
            """
import explainer, torch
from explainer_registry import registry
ex = explainer.wrap(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2)), size=(8, 8))
e = ex(torch.randn(1, 3, 8, 8), [0, 1], method="occlusion", patch=4, stride=4)
print(tuple(e.maps.shape), registry().methods.source("occlusion"), [fit.name for fit in ex.methods() if fit.fits])
""",
        )

        assert (done.stdout, done.stderr) == ("(1, 2, 2, 2) explainer-occlusion 0.1.0 ['occlusion']\n", "")

    def test_a_setting_that_it_does_not_have_is_refused_before_anything_is_loaded(self, explainer: Run) -> None:
        done = explainer("explain", "coffee.jpg", "--model", "demo", "--method", "occlusion", "--set", "path=64")

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "Error: --set path: no such setting of 'occlusion'; did you mean 'patch'? "
            "(settings: patch, stride, value, batch)\n"
        )


def test_an_upgrade_takes_the_place_of_what_was_there(explainer: Run, site: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    environment = Environment(tmp_path / "own")
    environment.install(EXAMPLE)
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    project = source / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "0.1.0"', 'version = "0.2.0"'))
    face = source / "explainer_occlusion" / "__init__.py"
    face.write_text(face.read_text().replace("slow, and true of any model.", "faster."))

    environment.install(source)
    shutil.rmtree(site)
    environment.site.rename(site)

    methods = explainer("methods")
    assert (methods.returncode, methods.stderr) == (0, "")
    assert row(methods, "occlusion")[2:] == [
        "How much the score falls when a square covers the place; faster.",
        "Zeiler & Fergus 2014, arXiv:1311.2901",
        "explainer-occlusion 0.2.0",
    ]
    assert row(explainer("plugins"), "explainer-occlusion:occlusion")[1:] == ["0.2.0", "on", "method occlusion"]


class TestBroken:
    """What goes wrong is told with the name of who is at fault, and nothing else is touched by it."""

    FAULT = "explainer-occlusion 0.1.0 (occlusion): ModuleNotFoundError: No module named 'explainer_oclusion'"

    @pytest.fixture
    def _face(self, site: Path) -> None:
        face = site / "explainer_occlusion" / "__init__.py"
        face.write_text(face.read_text() + "\nimport explainer_oclusion\n")

    @pytest.mark.usefixtures("_face")
    def test_the_lists_name_plugin_version_and_fault(self, explainer: Run) -> None:
        methods, plugins = explainer("methods"), explainer("plugins")

        assert (methods.returncode, methods.stderr) == (0, f"warning: {self.FAULT}\n")
        names = [line.split()[0] for line in methods.stdout.splitlines()]
        assert "gradcam" in names
        assert "occlusion" not in names
        assert row(plugins, "explainer-occlusion:occlusion")[1:] == ["0.1.0", "failed", "none"]
        assert plugins.stdout.splitlines()[-1] == f"problem: {self.FAULT}"

    @pytest.mark.usefixtures("_face")
    def test_asking_for_it_says_why_it_is_not_there(self, explainer: Run) -> None:
        done = explainer("explain", "coffee.jpg", "--model", "demo", "--method", "occlusion")

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"Error: no method named 'occlusion'; the plugin of that name could not be loaded: {self.FAULT}\n"
        )

    @pytest.mark.usefixtures("_face")
    def test_other_methods_work(self, explainer: Run) -> None:
        done = explainer("explain", "coffee.jpg", "--model", "demo", "--method", "cam", "--out", "maps")

        assert (done.returncode, done.stdout, done.stderr) == (0, DONE.replace("occlusion", "cam"), "")

    def test_code_that_cannot_be_imported_is_named_when_it_is_used(self, explainer: Run, site: Path) -> None:
        code = site / "explainer_occlusion" / "occlusion.py"
        code.write_text(code.read_text() + "\nfrom explainer.encoder import image_sizes\n")

        done = explainer("explain", "coffee.jpg", "--model", "demo", "--method", "occlusion")

        assert (explainer("methods").stderr, done.returncode, done.stdout) == ("", 2, "")
        assert done.stderr == (
            "Error: method 'occlusion' is installed but could not be loaded: explainer-occlusion 0.1.0: "
            f"cannot import name 'image_sizes' from 'explainer.encoder' ({find_spec('explainer.encoder').origin})\n"
        )


class TestSwitchedOff:
    """EXPLAINER_DISABLE_PLUGINS leaves it out, and says so."""

    @pytest.mark.parametrize("name", ["occlusion", "explainer-occlusion", "explainer-occlusion:occlusion"])
    def test_it_is_listed_as_off(self, explainer: Run, name: str) -> None:
        plugins = explainer("plugins", EXPLAINER_DISABLE_PLUGINS=name)

        assert (plugins.returncode, plugins.stderr) == (0, "")
        assert row(plugins, "explainer-occlusion:occlusion")[1:] == ["0.1.0", "off", "none"]
        assert plugins.stdout.splitlines()[-1] == (
            "off: explainer-occlusion 0.1.0 (occlusion): switched off by --disable-plugin or EXPLAINER_DISABLE_PLUGINS"
        )

    def test_asking_for_it_says_that_it_is_off(self, explainer: Run) -> None:
        done = explainer(
            *("explain", "coffee.jpg", "--model", "demo", "--method", "occlusion"),
            EXPLAINER_DISABLE_PLUGINS="occlusion",
        )

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "Error: no method named 'occlusion'; the plugin of that name is switched off: "
            "explainer-occlusion 0.1.0 (occlusion)\n"
        )

    def test_a_broken_one_that_is_off_is_not_even_imported(self, explainer: Run, site: Path) -> None:
        (site / "explainer_occlusion" / "__init__.py").write_text("raise SystemExit('imported')\n")

        done = explainer("methods", EXPLAINER_DISABLE_PLUGINS="occlusion")

        assert (done.returncode, done.stderr) == (0, "")


class TestAuthor:
    """What its author did."""

    def test_its_own_tests_pass(self, python: Run, tmp_path: Path) -> None:
        shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
        shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)

        done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "tests")

        assert done.returncode == 0, done.stdout

    def test_it_is_clean(self) -> None:
        done = run(sys.executable, "-m", "ruff", "check", "--no-cache", EXAMPLE, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        done = run(sys.executable, "-m", "ruff", "format", "--check", "--no-cache", EXAMPLE, cwd=ROOT)
        assert done.returncode == 0, done.stdout

    def test_less_than_sixty_lines_were_written(self) -> None:
        plugin = new_plugin("occlusion", "method")
        code = [name for name in plugin.files if name.startswith(f"{plugin.package}/")]

        written = [
            line
            for name in code
            for line in (EXAMPLE / name).read_text().splitlines()
            if line.strip() and line not in plugin.files[name].splitlines()
        ]

        assert len(written) < 60
