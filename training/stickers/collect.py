"""Collect what the model is trained on: drawings from packages of the npm registry, and photographs of scikit-image.

    npm pack PACKAGE   (each package named in hands.yaml; unpack each into FOLDER/PACKAGE)
    python training/stickers/collect.py FOLDER drawings/ photos/

Writes ``drawings/HAND/NOUN-CODE.png``, RGBA, cut out tightly and at most 96 pixels long, and ``photos/NAME.png``.
"""

from __future__ import annotations

import functools
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import resvg_py
import skimage.data
import yaml
from PIL import Image

HERE = Path(__file__).parent
NOUNS = HERE.parents[1] / "plugins" / "explainer_plugins" / "stickers" / "data" / "nouns.json"
EDGE = 96
PHOTOS = (
    "brick",
    "camera",
    "coins",
    "grass",
    "gravel",
    "hubble_deep_field",
    "ihc",
    "moon",
    "retina",
    "motorcycle_left",
)
"""Sample pictures of scikit-image for blurred backgrounds; those of the demo network are left for testing."""


def letters(name: str) -> str:
    """Spell a name as all hands do: 'Dog Face', 'dog-face' and 'dog_face' are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def spellings(packages: Path) -> dict[str, list[str]]:
    """List the English names of each code point, out of the data of emoji-datasource and the Unicode names."""
    listed = json.loads((packages / "emoji-datasource-twitter" / "emoji.json").read_text())
    unicode_names = json.loads((packages / "@iconify-json/twemoji" / "chars.json").read_text())
    names: dict[str, list[str]] = {}
    for entry in listed:
        code = entry["unified"].lower().removesuffix("-fe0f")
        unicode_name = unicode_names.get(code) or unicode_names.get(f"{code}-fe0f")
        names[code] = [entry["name"], *entry["short_names"], *([unicode_name] if unicode_name else [])]
    return names


def check_names(nouns: dict[str, list[str]], names: dict[str, list[str]]) -> None:
    """Refuse a noun that the data does not call so."""
    for noun, codes in nouns.items():
        if not any(letters(noun) in letters(name) for name in names[codes[0]]):
            raise SystemExit(f"'{noun}' is no name of {codes[0]}: {', '.join(names[codes[0]])}")


@functools.cache
def read_icons(package: Path) -> dict[str, Any]:
    """Read an Iconify set."""
    return json.loads((package / "icons.json").read_text())


def from_icons(package: Path, names: list[str]) -> Image.Image | None:
    """Draw one icon of an Iconify set."""
    icons = read_icons(package)
    by_letters = {letters(name): name for name in [*icons["icons"], *icons.get("aliases", {})]}
    found = next((by_letters[letters(name)] for name in names if letters(name) in by_letters), None)
    if found is None:
        return None
    icon = icons["icons"].get(found) or icons["icons"][icons["aliases"][found]["parent"]]
    width, height = icon.get("width", icons["width"]), icon.get("height", icons["height"])
    box = f"{icon.get('left', 0)} {icon.get('top', 0)} {width} {height}"
    drawn = resvg_py.svg_to_bytes(
        svg_string=f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box}" width="{4 * EDGE}" height="{4 * EDGE}">{icon["body"]}</svg>'
    )
    return Image.open(io.BytesIO(bytes(drawn)))


def from_files(folder: Path, code: str) -> Image.Image | None:
    """Read one picture that is called by its code point."""
    for path in (p for stem in (code, f"{code}-fe0f") for p in folder.glob(f"{stem}.*")):
        return Image.open(path)
    return None


def cut_out(drawing: Image.Image) -> Image.Image:
    """Cut away the empty border, and scale the longer edge down to 96 pixels."""
    drawing = drawing.convert("RGBA")
    drawing = drawing.crop(drawing.getchannel("A").point(lambda alpha: 255 * (alpha > 16)).getbbox())
    drawing.thumbnail((EDGE, EDGE), Image.Resampling.BOX if max(drawing.size) >= 2 * EDGE else Image.Resampling.BICUBIC)
    return drawing


def collect(packages: Path) -> Iterator[tuple[str, str, Image.Image]]:
    """Yield hand, 'noun-code' and drawing of everything that there is."""
    nouns: dict[str, list[str]] = json.loads(NOUNS.read_text())
    names = spellings(packages)
    check_names(nouns, names)
    for hand, source in yaml.safe_load((HERE / "hands.yaml").read_text()).items():
        for noun, codes in nouns.items():
            for code in codes:
                if "pictures" in source:
                    drawing = from_files(packages / source["package"] / source["pictures"], code)
                else:
                    drawing = from_icons(packages / source["package"], names[code])
                if drawing is not None:
                    yield hand, f"{noun}-{code}", cut_out(drawing)


def photographs(out: Path) -> None:
    """Copy the photographs, at most 400 pixels long."""
    out.mkdir(parents=True, exist_ok=True)
    for path in (path for name in PHOTOS for path in Path(skimage.data.__file__).parent.glob(f"{name}.*")):
        photo = Image.open(path).convert("RGB")
        photo.thumbnail((400, 400))
        photo.save(out / f"{path.stem}.png")


def main(packages: Path, out: Path, photos: Path) -> None:
    """Write all drawings and photographs, and say how many drawings each hand has."""
    photographs(photos)
    counts: dict[str, int] = {}
    for hand, name, drawing in collect(packages):
        path = out / hand / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.save(path)
        counts[hand] = counts.get(hand, 0) + 1
    print("\n".join(f"{hand}: {count}" for hand, count in counts.items()))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
