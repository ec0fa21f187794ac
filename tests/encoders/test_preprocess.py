"""Preprocessing against timm's and open_clip's own transforms, pixel for pixel, and the frame against the pixels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import timm.data
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torch import nn

from explainer.pictures import PictureError
from explainer.preprocess import Preprocess
from explainer_plugins.open_clip.encoder import preprocess_of as open_clip_preprocess
from explainer_plugins.timm.encoder import preprocess_of as timm_preprocess

# Width and height: ordinary, portrait, odd, tiny, one pixel, larger and smaller than any input, extreme shapes.
SIZES = [(640, 480), (300, 500), (333, 219), (501, 500), (224, 224), (17, 23), (3, 2), (1, 1), (900, 90), (61, 700)]

# The first published weights of every way in which timm prepares pictures.
CONFIGS = [
    ("resnet50.tv_in1k", "crop, bilinear"),
    ("resnet50.a1_in1k", "crop, bicubic"),
    ("convnext_atto.d2_in1k", "crop, bicubic, share 0.875 at 224"),
    ("efficientnet_b1.ft_in1k", "crop, odd share"),
    ("resnet50x4_clip.openai", "crop, 288 / 0.9, which floors to 320"),
    ("vit_so400m_patch14_siglip_378.webli", "crop or squash at 378 / 0.9"),
    ("vit_base_patch16_224.augreg_in1k", "mean and std of a half"),
    ("inception_v3.tv_in1k", "crop at 299"),
    ("tf_efficientnet_b5.ns_jft_in1k", "crop at 456"),
    ("convnext_tiny.in12k", "share 0.95"),
    ("vit_medium_patch16_reg4_gap_256.sbb_in12k_ft_in1k", "share 0.95 at 256"),
    ("beitv2_base_patch16_224.in1k_ft_in1k", "share 0.9"),
    ("eva02_base_patch14_448.mim_in22k_ft_in1k", "squash, bicubic"),
    ("vit_base_patch16_siglip_224.webli", "squash with mean and std of a half"),
    ("vit_base_patch32_clip_448.laion2b_ft_in12k_in1k", "squash at 448"),
    ("vit_5b_patch16_sapiens2.fb", "squash, bilinear, 1024 x 768"),
]


@lru_cache(maxsize=len(SIZES))
def picture(size: tuple[int, int]) -> Image.Image:
    noise = np.random.default_rng(size[0] * 1000 + size[1]).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(noise)


class Bare(nn.Module):
    """Only what timm reads a preprocessing from."""

    def __init__(self, **cfg: Any) -> None:
        super().__init__()
        self.pretrained_cfg = cfg


def of_tag(tag: str) -> Bare:
    return Bare(**timm.get_pretrained_cfg(tag).to_dict())


def assert_same_as_timm(model: nn.Module, own: Preprocess, **changes: Any) -> None:
    reference = timm.data.create_transform(**timm.data.resolve_data_config(changes, model=model))
    for size in SIZES:
        expected = reference(picture(size))
        assert torch.equal(own(picture(size)), expected), f"differs for {size}: {reference}"


@pytest.mark.parametrize("tag", [tag for tag, _ in CONFIGS])
def test_equals_timm(tag: str) -> None:
    model = of_tag(tag)
    assert_same_as_timm(model, timm_preprocess(model, None))


def test_every_published_config_of_timm_gives_the_same_sizes() -> None:
    """Every way of scaling and cutting that timm's published weights use, on the sizes of the steps alone."""
    seen = set()
    for tag in timm.list_pretrained():
        cfg = timm.get_pretrained_cfg(tag)
        how = (cfg.input_size, cfg.crop_pct, cfg.crop_mode, cfg.interpolation, cfg.mean, cfg.std)
        if how in seen:
            continue
        seen.add(how)
        model = Bare(**cfg.to_dict())
        reference = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model)).transforms
        own = timm_preprocess(model, None)
        scale = reference[0].size
        assert (own.scaled if own.scaled[0] != own.scaled[1] or not isinstance(scale, int) else own.scaled[0]) == scale
        assert own.size == tuple(reference[1].size)
        assert own.mean == tuple(reference[-1].mean.tolist()) or np.allclose(own.mean, reference[-1].mean)
        assert np.allclose(own.std, reference[-1].std)
        assert own.interpolation == getattr(reference[0].interpolation, "value", reference[0].interpolation)
    assert len(seen) > 100


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(
    ("input_size", "share"),
    [((3, 96, 96), 0.875), ((3, 96, 96), 1.0), ((3, 96, 64), 0.9), ((3, 61, 97), 1.0), ((3, 63, 95), 0.8)],
)
def test_every_mode_of_timm(mode: str, interpolation: str, input_size: tuple[int, int, int], share: float) -> None:
    model = Bare(crop_mode=mode, interpolation=interpolation, input_size=input_size, crop_pct=share)
    assert_same_as_timm(model, timm_preprocess(model, None))


@pytest.mark.parametrize("size", [(448, 448), (336, 448), (100, 60)])
@pytest.mark.parametrize(
    "tag", ["resnet50x4_clip.openai", "resnet50.tv_in1k", "eva02_base_patch14_448.mim_in22k_ft_in1k"]
)
def test_another_size_keeps_the_share_of_timm(tag: str, size: tuple[int, int]) -> None:
    model = of_tag(tag)
    assert_same_as_timm(model, timm_preprocess(model, size), input_size=(3, *size))


def test_a_model_built_for_another_size_is_given_that_size() -> None:
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=(96, 128), depth=1)
    own = timm_preprocess(model, None)
    assert own.size == (96, 128)
    assert_same_as_timm(model, own, input_size=(3, 96, 128))


def test_a_random_interpolation_is_bicubic() -> None:
    """timm trains with a random one; its own evaluation transform cannot be built from it."""
    assert timm_preprocess(Bare(interpolation="random", input_size=(3, 32, 32)), None).interpolation == "bicubic"


class Tower(nn.Module):
    """Only what open_clip reads a preprocessing from."""

    def __init__(self, image_size: Any = 224, **cfg: Any) -> None:
        super().__init__()
        self.image_size = image_size
        if cfg:
            self.preprocess_cfg = cfg


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "random"])
@pytest.mark.parametrize("size", [96, (96, 96), (96, 64), (61, 97)])
def test_equals_open_clip(mode: str, interpolation: str, size: int | tuple[int, int]) -> None:
    cfg: dict[str, Any] = {"size": size, "resize_mode": mode, "interpolation": interpolation, "fill_color": 37}
    reference = image_transform_v2(PreprocessCfg(**cfg), is_train=False)
    own = open_clip_preprocess(Tower(**cfg), None)
    for shape in SIZES:
        assert torch.equal(own(picture(shape)), reference(picture(shape))), f"differs for {shape}: {reference}"


def test_every_published_config_of_open_clip() -> None:
    seen = set()
    for name, tag in open_clip.list_pretrained():
        cfg = open_clip.pretrained.get_pretrained_cfg(name, tag)
        size = open_clip.get_model_config(name)["vision_cfg"]["image_size"]
        how = open_clip.transform.merge_preprocess_dict(PreprocessCfg(size=size), cfg)
        if str(how) in seen:
            continue
        seen.add(str(how))
        reference = image_transform_v2(PreprocessCfg(**how), is_train=False)
        own = open_clip_preprocess(Tower(**how), None)
        for shape in SIZES[1:4]:
            assert torch.equal(own(picture(shape)), reference(picture(shape))), f"{name}/{tag}: {reference}"
    assert len(seen) > 10


def test_equals_the_transform_that_open_clip_returns_with_a_model() -> None:
    model, _, reference = open_clip.create_model_and_transforms("RN50", image_mean=(0.1, 0.2, 0.3))
    own = open_clip_preprocess(model.visual, None)
    for shape in SIZES[:4]:
        assert torch.equal(own(picture(shape)), reference(picture(shape)))


def test_a_tower_without_a_config_is_prepared_as_open_clip_does_by_default() -> None:
    own = open_clip_preprocess(Tower(image_size=(64, 64)), None)
    reference = image_transform_v2(PreprocessCfg(size=(64, 64)), is_train=False)
    assert torch.equal(own(picture(SIZES[0])), reference(picture(SIZES[0])))


FITS = [
    (fit, size, share) for fit in ("crop", "squash", "pad") for size in ((96, 96), (64, 96)) for share in (1.0, 0.8)
]


@pytest.mark.parametrize(("fit", "size", "share"), FITS)
@pytest.mark.parametrize("shape", [(40, 30), (25, 60), (200, 131), (97, 300)])
def test_a_bright_dot_is_found_again_through_the_frame(
    fit: Any, size: tuple[int, int], share: float, shape: tuple[int, int]
) -> None:
    """The place of the dot in the input, mapped back through the box, is its place on the picture."""
    scaled = (int(size[0] / share), int(size[1] / share))
    preprocess = Preprocess(size, (0.0,) * 3, (1.0,) * 3, "bilinear", scaled, fit)
    width, height = shape
    found = 0
    for x in range(2, width - 2, max(width // 7, 1)):
        for y in range(2, height - 2, max(height // 7, 1)):
            array = np.zeros((height, width, 3), dtype=np.uint8)
            array[y - 1 : y + 2, x - 1 : x + 2] = 255
            dotted = Image.fromarray(array)
            light = preprocess(dotted)[0].double()
            rows, columns = light.sum(1).nonzero().flatten(), light.sum(0).nonzero().flatten()
            inside = (
                len(rows) and rows[0] > 0 and rows[-1] < size[0] - 1 and columns[0] > 0 and columns[-1] < size[1] - 1
            )
            if not inside:
                continue  # the dot was cut away, in part or whole
            found += 1
            row = (light.sum(1) @ (torch.arange(size[0]) + 0.5).double()) / light.sum()
            column = (light.sum(0) @ (torch.arange(size[1]) + 0.5).double()) / light.sum()
            left, top, right, bottom = preprocess.frame(dotted).box
            assert abs(left + float(column) / size[1] * (right - left) - (x + 0.5)) < 1
            assert abs(top + float(row) / size[0] * (bottom - top) - (y + 0.5)) < 1
    assert found > 4


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize(
    ("fit", "share", "inside"), [("crop", 1.0, True), ("crop", 0.875, True), ("squash", 1.0, True), ("pad", 1.0, False)]
)
def test_the_box_of_a_crop_lies_on_the_picture_and_that_of_padding_around_it(
    fit: Any, share: float, inside: bool, shape: tuple[int, int]
) -> None:
    side = int(96 / share)
    frame = Preprocess((96, 96), scaled=(side, side), fit=fit).frame(picture(shape))
    left, top, right, bottom = frame.box
    # One pixel of the scaled picture is the precision of its rounded size.
    across, down = shape[0] / side + 1e-6, shape[1] / side + 1e-6
    assert frame.picture == shape
    if inside:
        assert left >= -1e-6
        assert top >= -1e-6
        assert right <= shape[0] + 1e-6
        assert bottom <= shape[1] + 1e-6
    else:
        assert left <= across
        assert top <= down
        assert right >= shape[0] - across
        assert bottom >= shape[1] - down


def test_squash_without_a_crop_sees_the_whole_picture() -> None:
    assert Preprocess((96, 96), fit="squash").frame(picture((640, 480))).box == (0, 0, 640, 480)


def test_a_centre_crop_by_hand() -> None:
    """600 x 300 to a height of 128: 256 x 128, of which the middle 112 x 112 stays, 72 to 184 across."""
    box = Preprocess((112, 112), scaled=(128, 128)).frame(picture((600, 300))).box
    assert np.allclose(box, (72 / 256 * 600, 8 / 128 * 300, 184 / 256 * 600, 120 / 128 * 300))


def test_padding_by_hand() -> None:
    """600 x 300 to 96 x 48, with 24 rows of padding above and below: half a picture height each."""
    box = Preprocess((96, 96), fit="pad").frame(picture((600, 300))).box
    assert np.allclose(box, (0, -150, 600, 450))


def test_padding_has_the_colour_of_the_config() -> None:
    own = Preprocess((96, 96), (0.0,) * 3, (1.0,) * 3, fit="pad", fill=(10, 20, 30))
    image = own(Image.new("RGB", (600, 300), (255, 255, 255)))
    assert torch.allclose(image[:, 0, 0], torch.tensor([10, 20, 30]) / 255)
    assert torch.allclose(image[:, 48, 48], torch.ones(3))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_any_mode_is_read_as_rgb(mode: str) -> None:
    own, given = Preprocess((32, 32)), picture((40, 30)).convert(mode)
    assert torch.equal(own(given), own(given.convert("RGB")))


@pytest.mark.parametrize("shape", [(1, 60000), (60000, 1)])
def test_a_picture_that_would_fill_the_memory(shape: tuple[int, int]) -> None:
    """A crop scales the shorter side to the input's, whatever that makes of the longer one."""
    line = Image.new("RGB", shape)
    width, height = (224 if side == 1 else 224 * 60000 for side in shape)
    with pytest.raises(PictureError) as caught:
        Preprocess((224, 224))(line)
    assert str(caught.value) == (
        f"a picture {shape[0]} wide and {shape[1]} high would be scaled to {width} x {height} before its middle is cut "
        "out; cut it yourself first"
    )
    assert Preprocess((224, 224), fit="squash")(line).shape == (3, 224, 224)


@pytest.mark.parametrize("shape", [(1000, 1), (1, 1000), (5000, 3)])
@pytest.mark.parametrize("fit", ["crop", "squash", "pad"])
def test_a_picture_as_thin_as_a_line(fit: Any, shape: tuple[int, int]) -> None:
    """A side is never rounded down to nothing."""
    preprocess = Preprocess((32, 32), fit=fit)
    image = preprocess(picture(shape))
    assert image.shape == (3, 32, 32)
    assert image.isfinite().all()
    assert preprocess.frame(picture(shape)).picture == shape
