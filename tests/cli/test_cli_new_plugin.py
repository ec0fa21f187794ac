"""The command that writes a plugin to begin with, and what it writes."""

from __future__ import annotations

import ast
import os
import py_compile
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from hatchling.builders.wheel import WheelBuilder

from explainer.cli import main
from explainer.newplugin import KINDS
from explainer_registry import Registry, registry, use
from explainer_registry.specs import SPECS

NOUNS = ("method", "encoder", "score", "metric", "dataset", "view")
PLUGINS = Path(__file__).parents[2] / "plugins" / "explainer_plugins"
SCRIPT = Path(sys.executable).with_name("explainer")
OWN = f"vision-explainer {version('vision-explainer')}"

# What was copied: package, module, class of settings, name.
ORIGINALS = {
    "method": ("similarity", "similarity", "Similarity", "similarity"),
    "encoder": ("torch", "encoder", "Torch", "torch"),
    "score": ("scores", "scores", "Logit", "logit"),
    "metric": ("metrics", "metrics", "Pointing", "pointing"),
    "dataset": ("stickers", "dataset", "StickerScenes", "stickers"),
    "view": ("views", "views", "Heat", "heat"),
}


def name_of(noun: str) -> str:
    return f"zebra_{noun}"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new plugin of each kind, "explainer-zebra-method" and so on."""
    folder = tmp_path_factory.mktemp("written")
    for noun in NOUNS:
        arguments = ["new-plugin", name_of(noun), "--kind", noun, "--out", str(folder / f"explainer-zebra-{noun}")]
        CliRunner().invoke(main, arguments, catch_exceptions=False)
    return folder


@pytest.fixture(scope="module")
def site(written: Path) -> Path:
    """A folder into which all of them are installed from their wheels."""
    folder = written / "site"
    for noun in NOUNS:
        (wheel,) = WheelBuilder(str(written / f"explainer-zebra-{noun}")).build(
            directory=str(written / "wheels"), versions=["standard"]
        )
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


@pytest.fixture
def loaded(written: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The registry of this process, with all of them beside what is installed."""
    for noun in NOUNS:
        monkeypatch.syspath_prepend(written / f"explainer-zebra-{noun}")
    new = [EntryPoint(name_of(noun), f"explainer_{name_of(noun)}", "explainer") for noun in NOUNS]
    with use(Registry.discover(entry_points=[*entry_points(group="explainer"), *new], strict=True)) as there:
        yield there
    for name in [name for name in sys.modules if name.startswith("explainer_zebra_")]:
        del sys.modules[name]


def run(site: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        command, cwd=site, env={**os.environ, "PYTHONPATH": path}, capture_output=True, encoding="utf-8", check=False
    )


def sources(written: Path, noun: str) -> list[tuple[str, str]]:
    """The code of a new plugin with the names of the built-in, beside the built-in: its face, then its code."""
    package, module, settings, original = ORIGINALS[noun]
    name, folder = name_of(noun), written / f"explainer-zebra-{noun}" / f"explainer_zebra_{noun}"
    back = {
        f"explainer_{name}.{name}": f"explainer_plugins.{package}.{module}",
        f"explainer_{name}": f"explainer_plugins.{package}",
        f"Zebra{noun.capitalize()}": settings,
        name: original,
    }
    pairs: list[tuple[str, str]] = []
    for new, old in (("__init__", "__init__"), (name, module)):
        text = (folder / f"{new}.py").read_text(encoding="utf-8")
        for one, other in back.items():
            text = text.replace(one, other)
        pairs.append((text, (PLUGINS / package / f"{old}.py").read_text(encoding="utf-8")))
    return pairs


def imported(source: str) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {f"{getattr(node, 'module', '')} {name.name} {name.asname}" for node in nodes for name in node.names}


class TestCommand:
    """What is said and written."""

    def test_it_says_what_it_wrote_and_what_to_type_next(self, explainer, folder: Path) -> None:
        result = explainer("new-plugin", "zebra")

        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == (
            "wrote explainer-zebra: the method zebra, which does what similarity does until you change it\n"
            "  pyproject.toml\n"
            "  explainer_zebra/__init__.py  its name and settings\n"
            "  explainer_zebra/zebra.py     its code\n"
            "  tests/test_zebra.py\n"
            "  README.md\n"
            "  .github/workflows/test.yml\n"
            "next:\n"
            "  cd explainer-zebra\n"
            '  pip install -e ".[test]"\n'
            "  explainer methods\n"
            "  explainer explain PICTURE --model demo --method zebra\n"
            "  pytest\n"
        )
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert files == {
            "explainer-zebra/pyproject.toml",
            "explainer-zebra/explainer_zebra/__init__.py",
            "explainer-zebra/explainer_zebra/zebra.py",
            "explainer-zebra/tests/test_zebra.py",
            "explainer-zebra/README.md",
            "explainer-zebra/.github/workflows/test.yml",
        }

    @pytest.mark.parametrize(
        ("noun", "first"),
        [
            ("method", "explainer explain PICTURE --model demo --method zebra"),
            ("score", "explainer explain PICTURE --model demo --method gradcam --score zebra"),
            ("metric", "explainer bench --model stickers --pictures 20 --metrics zebra"),
            ("view", "explainer explain PICTURE --model demo --view zebra"),
            ("dataset", "explainer bench --model stickers --pictures 20 --data zebra"),
            (
                "encoder",
                'python -c "import explainer, timm; '
                "print(explainer.wrap(timm.create_model('resnet18'), encoder='zebra').inspect())\"",
            ),
        ],
    )
    def test_each_kind_has_a_first_use(self, explainer, folder: Path, noun: str, first: str) -> None:
        result = explainer("new-plugin", "zebra", "--kind", noun, "--out", "a folder/of mine")

        assert result.stdout.splitlines()[-5:] == [
            "  cd 'a folder/of mine'",
            '  pip install -e ".[test]"',
            f"  explainer {noun}s",
            f"  {first}",
            "  pytest",
        ]
        assert first in (folder / "a folder" / "of mine" / "README.md").read_text(encoding="utf-8")

    def test_every_kind_that_there_is_can_be_written(self) -> None:
        assert list(KINDS) == list(ORIGINALS) == list(NOUNS)
        assert list(KINDS.values()) == list(SPECS)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ("My-Method",),
                "method name 'My-Method' is not valid: use lower-case letters, digits and '_', starting with a "
                "letter, e.g. 'my_method'",
            ),
            (
                ("2d",),
                "method name '2d' is not valid: use lower-case letters, digits and '_', starting with a letter",
            ),
            (
                ("lambda", "--kind", "score"),
                "'lambda' is a word of Python, so no module can have it; choose another name, such as 'my_lambda'",
            ),
            (
                ("tensor",),
                "the code of a method named 'tensor' would use the name 'Tensor' for two things; choose another name, "
                "such as 'my_tensor'",
            ),
            (
                ("answer", "--kind", "score"),
                "the code of a score named 'answer' would use the name 'Answer' for two things; choose another name, "
                "such as 'my_answer'",
            ),
            (
                ("gem",),
                f"there is a method gem already, by {OWN} (self_attention); choose another name, such as 'my_gem'",
            ),
            (
                ("zebra", "--kind", "mehtod"),
                "no kind of plugin named 'mehtod'; did you mean 'method'? "
                "(kinds: method, encoder, score, metric, dataset, view)",
            ),
            (
                ("zebra", "--kind", "methods"),
                "no kind of plugin named 'methods'; did you mean 'method'? "
                "(kinds: method, encoder, score, metric, dataset, view)",
            ),
            (
                ("registry",),
                "a plugin named 'registry' is kept in the package 'explainer_registry', and there is one already, "
                f"'{find_spec('explainer_registry').origin}'; choose another name, such as 'my_registry'",
            ),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_what_cannot_be_written_is_refused(
        self, explainer, folder: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        result = explainer("new-plugin", *arguments)

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"Error: {message}\n"
        assert list(folder.iterdir()) == []

    def test_a_name_of_another_kind_is_free(self, explainer) -> None:
        assert explainer("new-plugin", "gem", "--kind", "score").exit_code == 0

    def test_the_plugin_that_has_the_name_is_told_whosever_it_is(self, explainer, loaded) -> None:
        result = explainer("new-plugin", "zebra_score", "--kind", "score")

        assert result.stderr == (
            "Error: there is a score zebra_score already, by explainer-zebra-score (no version) (zebra_score); "
            "choose another name, such as 'my_zebra_score'\n"
        )

    def test_a_name_whose_distribution_is_written_otherwise_keeps_its_package(self, explainer, folder: Path) -> None:
        result = explainer("new-plugin", "a__b_")

        assert result.stdout.startswith("wrote explainer-a-b: the method a__b_, which does")
        (wheel,) = WheelBuilder(str(folder / "explainer-a-b")).build(directory=str(folder), versions=["standard"])
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert sorted(names) == ["explainer_a__b_/__init__.py", "explainer_a__b_/a__b_.py"]

    def test_a_package_that_only_left_its_folder_is_in_the_way_too(
        self, explainer, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "path" / "explainer_zebra").mkdir(parents=True)
        monkeypatch.syspath_prepend(folder / "path")

        result = explainer("new-plugin", "zebra")

        assert result.stderr == (
            "Error: a plugin named 'zebra' is kept in the package 'explainer_zebra', and there is one already, "
            f"'{folder / 'path' / 'explainer_zebra'}'; choose another name, such as 'my_zebra'\n"
        )

    def test_nothing_is_overwritten(self, explainer, folder: Path) -> None:
        (folder / "explainer-zebra").mkdir()
        (folder / "explainer-zebra" / "README.md").write_text("mine")

        result = explainer("new-plugin", "zebra")

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == (
            "Error: 'explainer-zebra' is there already, and nothing in it was changed; choose another folder with "
            "--out\n"
        )
        assert [path.name for path in (folder / "explainer-zebra").iterdir()] == ["README.md"]
        assert (folder / "explainer-zebra" / "README.md").read_text() == "mine"

    def test_a_folder_that_cannot_be_made_is_named(self, explainer, folder: Path) -> None:
        (folder / "file").write_text("")

        result = explainer("new-plugin", "zebra", "--out", "file/zebra")

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == "Error: cannot write to 'file/zebra': Not a directory\n"

    def test_plugins_that_are_switched_off_can_be_copied(self, explainer) -> None:
        with use(Registry.discover(disabled=["vision-explainer"])):
            assert explainer("new-plugin", "zebra").exit_code == 0


@pytest.mark.parametrize("noun", NOUNS)
class TestCopy:
    """What is written is the built-in under another name."""

    def test_it_is_the_built_in_to_the_letter(self, written: Path, noun: str) -> None:
        for copy, original in sources(written, noun):
            below = re.sub(r'\A""".*?"""', "", copy, flags=re.DOTALL)
            code = [line for line in below.strip().splitlines() if not re.match(r"\s*(from|import) ", line)]
            rest = iter(original.splitlines())
            assert [line for line in code if line not in rest] == []
            assert imported(copy) <= imported(original)

    def test_nothing_that_the_copy_needs_is_left_out(self, written: Path, noun: str) -> None:
        if noun in ("method", "encoder"):
            assert [copy for copy, original in sources(written, noun) if copy != original] == []
        face, code = (ast.parse(copy).body for copy, _ in sources(written, noun))
        _, _, settings, original = ORIGINALS[noun]
        assert [node.name for node in face if isinstance(node, ast.ClassDef | ast.FunctionDef)] == [
            settings,
            f"explainer_{noun}s",
        ]
        factory = {"method": "run", "encoder": "build", "dataset": "build"}.get(noun, original)
        assert factory in [node.name for node in code if isinstance(node, ast.FunctionDef)]

    def test_no_name_of_the_built_in_is_left(self, written: Path, noun: str) -> None:
        package, module, settings, original = ORIGINALS[noun]
        for file in (written / f"explainer-zebra-{noun}" / f"explainer_zebra_{noun}").glob("*.py"):
            text = re.sub(r'""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
            assert re.findall(rf'\b{settings}|"{original}"|def {original}\b|the {original} {noun}\b', text) == []
            assert re.findall(rf"explainer_plugins\.{package}(?:\.{module}\b|(?!\.))", text) == []

    def test_its_docstrings_are_left_alone(self, written: Path, noun: str) -> None:
        package, module, _, _ = ORIGINALS[noun]
        folder = written / f"explainer-zebra-{noun}" / f"explainer_zebra_{noun}"
        summary = registry().catalogue(KINDS[noun]).get(ORIGINALS[noun][3]).summary
        for new, old in (("__init__", "__init__"), (name_of(noun), module)):
            found, there = (
                re.findall(r'""".*?"""', file.read_text(encoding="utf-8"), flags=re.DOTALL)
                for file in (folder / f"{new}.py", PLUGINS / package / f"{old}.py")
            )
            assert found
            assert set(found) <= {*there, f'"""{summary}"""'}

    def test_it_compiles_and_is_clean(self, written: Path, noun: str, tmp_path: Path) -> None:
        folder = written / f"explainer-zebra-{noun}"
        for file in folder.rglob("*.py"):
            py_compile.compile(str(file), cfile=str(tmp_path / "compiled"), doraise=True)

        for command in (["check"], ["format", "--check"]):
            done = run(folder, sys.executable, "-m", "ruff", *command, "--no-cache", ".")
            assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize("name", ["z", "a_name_of_forty_letters_which_is_very_long"])
    def test_it_is_clean_whatever_it_is_called(self, explainer, folder: Path, noun: str, name: str) -> None:
        assert explainer("new-plugin", name, "--kind", noun, "--out", "new").exit_code == 0

        done = run(folder, sys.executable, "-m", "ruff", "check", "--no-cache", "new")
        assert done.returncode == 0, done.stdout

    def test_a_fresh_process_lists_it(self, site: Path, noun: str) -> None:
        done = run(site, SCRIPT, f"{noun}s")

        assert (done.returncode, done.stderr) == (0, "")
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"{name_of(noun)} "))
        assert line.endswith(f"  explainer-zebra-{noun} 0.1.0")


class TestWorks:
    """What is written does what the built-in does."""

    @pytest.fixture
    def net(self):
        import torch

        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(8, 5),
        )

    def test_method_score_and_encoder(self, loaded, net) -> None:
        import torch

        import explainer

        images = torch.randn(2, 3, 16, 24)
        ours = explainer.wrap(net, size=(16, 24))
        theirs = explainer.wrap(net, encoder="zebra_encoder", size=(16, 24))

        assert theirs.encoder.name == "zebra_encoder:Sequential"
        assert type(theirs.encoder).__name__ == "ZebraEncoderEncoder"
        assert torch.equal(
            ours(images, [0, 1], method="similarity").maps, theirs(images, [0, 1], method="zebra_method").maps
        )
        logit, score = (ours(images, [0, 1], method="gradcam", score=name) for name in ("logit", "zebra_score"))
        assert torch.equal(logit.maps, score.maps)
        assert score.provenance.score == "zebra_score"

    def test_metric_and_dataset(self, loaded: Registry) -> None:
        import numpy as np
        import torch

        from explainer.bench.sample import Truth

        ours, theirs = (
            loaded.datasets.load(name)(loaded.datasets.get(name).schema()) for name in ("stickers", "zebra_dataset")
        )
        assert (theirs.name, len(theirs)) == ("zebra_dataset", 500)
        assert np.array_equal(ours[3].picture, theirs[3].picture)
        heat = torch.rand(8, 8)
        truth = Truth(torch.rand(8, 8) > 0.5, torch.ones(8, 8, dtype=torch.bool))
        values = [
            loaded.metrics.load(name)(loaded.metrics.get(name).schema(), heat, truth)
            for name in ("pointing", "zebra_metric")
        ]
        assert values[0] == values[1]

    def test_view(self, loaded: Registry, net) -> None:
        import torch

        import explainer

        e = explainer.wrap(net, size=(16, 24))(torch.randn(1, 3, 16, 24), [0], method="similarity")
        assert e.draw("zebra_view") == e.draw("heat")

    def test_a_map_by_the_command_line(self, site: Path, cat: Path) -> None:
        done = run(
            site, SCRIPT, "explain", cat, "--model", "demo", "--method", "zebra_method", "--out", cat.parent / "maps"
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[1].split()[:3] == ["zebra_method", "tiger", "cat"]
        assert (cat.parent / "maps" / "cat" / "tiger-cat-zebra_method.png").is_file()

    def test_the_tests_that_are_written_pass(self, site: Path, written: Path) -> None:
        tests = [written / f"explainer-zebra-{noun}" / "tests" for noun in NOUNS]
        plain = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")

        done = run(site, sys.executable, "-m", "pytest", "-q", *plain, "--rootdir", written, *tests)

        assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_only_a_copy_of_what_is_installed(monkeypatch: pytest.MonkeyPatch, explainer, folder: Path) -> None:
    """There is no second template that could fall behind: what changes in the built-in changes in the copy."""
    read = Path.read_text

    def changed(self: Path, *arguments, **settings) -> str:
        return read(self, *arguments, **settings).replace("readout", "gradient")

    monkeypatch.setattr(Path, "read_text", changed)
    explainer("new-plugin", "zebra")
    monkeypatch.undo()

    face = (folder / "explainer-zebra" / "explainer_zebra" / "__init__.py").read_text()
    assert 'needs=frozenset({"features", "gradient"})' in face
    assert registry().methods.get("similarity").needs == {"features", "readout"}
