"""What a user gets: three packages of ours, nothing generic, with their data."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins" / "explainer_plugins"
OURS = {"explainer", "explainer_plugins", "explainer_registry"}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this clone, built with the hatchling that is installed, so without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def entry_points(wheel: Path) -> dict[str, str]:
    parser = configparser.ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        parser.read_string(archive.read(name).decode())
    return dict(parser["explainer"])


def is_metadata(name: str) -> bool:
    return name.startswith("vision_explainer-") and name.endswith(".dist-info")


def test_top_level_names_are_exactly_ours(names: list[str]) -> None:
    top = {name.split("/")[0] for name in names}

    assert {name for name in top if not is_metadata(name)} == OURS
    assert len(top) == len(OURS) + 1


def test_an_environment_gains_exactly_our_names(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", "clean", cwd=tmp_path)
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    python = tmp_path / "clean" / scripts / "python"
    where = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    site_packages = Path(where.strip())
    before = set(site_packages.iterdir())

    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--no-compile",
    )
    run(*pip, wheel, cwd=tmp_path)

    gained = {path.name for path in set(site_packages.iterdir()) - before}
    assert {name for name in gained if not is_metadata(name)} == OURS
    assert python.with_name("explainer").exists() or python.with_name("explainer.exe").exists()


def test_check_wheel_contents_has_nothing_to_say(wheel: Path) -> None:
    run(sys.executable, "-m", "check_wheel_contents", wheel, cwd=ROOT)


@pytest.mark.parametrize("package", sorted(OURS))
def test_type_checkers_are_told_of_the_annotations(names: list[str], package: str) -> None:
    assert f"{package}/py.typed" in names


def test_every_file_of_a_package_is_shipped(names: list[str]) -> None:
    roots = (ROOT, ROOT / "plugins", ROOT / "registry")
    here = {
        path.relative_to(root).as_posix()
        for root in roots
        for package in OURS
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert here == {name for name in names if name.split("/")[0] in OURS}


def test_the_photographs_and_their_sources_are_shipped(names: list[str]) -> None:
    folder = "explainer_plugins/demo/photos/"
    shipped = {name.removeprefix(folder) for name in names if name.startswith(folder)}

    assert shipped == {"SOURCES.md", "astronaut.jpg", "chelsea.jpg", "coffee.jpg"}


def test_every_photograph_is_small_and_has_a_source() -> None:
    sources = (PLUGINS / "demo" / "photos" / "SOURCES.md").read_text(encoding="utf-8")

    for photo in (PLUGINS / "demo" / "photos").glob("*.jpg"):
        assert f"`{photo.name}`" in sources
        assert photo.stat().st_size <= 60 * 1024


def test_licence_and_notice_are_shipped(names: list[str]) -> None:
    licences = {name.split(".dist-info/licenses/")[1] for name in names if ".dist-info/licenses/" in name}

    assert licences == {"LICENSE", "NOTICE"}


def test_every_built_in_package_is_a_declared_plugin(wheel: Path) -> None:
    packages = {path.parent.name for path in PLUGINS.glob("*/__init__.py")}

    assert entry_points(wheel) == {package: f"explainer_plugins.{package}" for package in packages}


def test_the_installed_metadata_is_up_to_date(wheel: Path) -> None:
    installed = {
        point.name: point.value for point in distribution("vision-explainer").entry_points if point.group == "explainer"
    }

    assert installed == entry_points(wheel), 'pyproject.toml has changed: run  pip install -e ".[test]"  again'
