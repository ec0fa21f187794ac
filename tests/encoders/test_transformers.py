"""Models of transformers: what they say, where their last map is, and what one of its cells means."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from oracles.helpers import SMALL, assert_same_maps, clip_model, random_directions, random_images
from torch import Tensor, nn

import explainer
from explainer.attention import ordinary
from explainer.intercept import intercept

from .small_transformers import CLASSIFIERS, PAIRS, TEXT, classifier, output_of, pair, size_of, small, tokenizer

KINDS = [*((classifier, name) for name in CLASSIFIERS), *((pair, name) for name in PAIRS)]
DENSE = [(classifier, "vit"), (classifier, "beit"), (classifier, "dinov2"), (pair, "clip"), (pair, "siglip")]


@cache
def explained(make: Callable[[str], nn.Module], name: str, attention: str | None = None) -> explainer.Explainer:
    """One of the small models, wrapped once for all tests. None of them changes it."""
    model = make(name)
    if attention is not None:
        model.set_attn_implementation(attention)
    return explainer.wrap(model, **({"tokenizer": tokenizer()} if make is pair else {}))


def pictures(ex: explainer.Explainer, count: int = 2) -> Tensor:
    return random_images(count, size_of(ex.encoder.model))


def asked(ex: explainer.Explainer) -> Any:
    return [2, 5] if "classes" in ex.encoder.capabilities else ["a red bus", "the cat"]


def forward(ex: explainer.Explainer, images: Tensor) -> Tensor:
    with ex.encoder.session() as hooks, torch.no_grad():
        return ex.encoder.forward(images, hooks)


# What they say, and of which cells


@pytest.mark.parametrize(("make", "name"), KINDS)
def test_the_output_is_the_models_own(make: Callable[[str], nn.Module], name: str) -> None:
    ex = explained(make, name)
    images = pictures(ex)
    assert ex.encoder.name == f"transformers:{type(ex.encoder.model).__name__}"
    assert torch.allclose(forward(ex, images), output_of(ex.encoder.model, images), atol=1e-6)


@pytest.mark.parametrize(("make", "name"), KINDS)
def test_every_method_that_fits_gives_maps_on_the_grid(make: Callable[[str], nn.Module], name: str) -> None:
    ex = explained(make, name)
    images = pictures(ex)
    last = ex.encoder.last_map(images)
    edge = size_of(ex.encoder.model)
    cells = 4 if edge == 32 else 8 if name == "swin" else 2
    assert (last.grid.height, last.grid.width) == (cells, cells)
    names = {fit.name for fit in ex.methods() if fit.fits}
    assert names >= {"cam", "similarity", "gradcam"}
    for method in names:
        e = ex(images, asked(ex), method=method, **({"relu": False} if method == "gradcam" else {}))
        assert e.maps.shape == (2, 2, cells, cells)
        assert e.maps.isfinite().all()
        assert (e.maps.flatten(2).std(dim=2) > 0).all()


@pytest.mark.parametrize(("make", "name"), KINDS)
def test_exact_readouts_give_the_output_and_others_say_that_they_do_not(
    make: Callable[[str], nn.Module], name: str
) -> None:
    """Differences between pictures, because the bias of a classifier is in no contribution."""
    ex = explained(make, name)
    encoder, images = ex.encoder, pictures(ex, 3)
    last = encoder.last_map(images)
    with encoder.session() as hooks, torch.no_grad():
        tap = hooks.tap(last.layer)
        output = encoder.forward(images, hooks)
        every = torch.eye(output.shape[1]).expand(3, -1, -1)
        found = {"mean": encoder.needed_readout.contributions(last.grid.to_columns(tap.value), every).mean(dim=2)}
        if last.grid.prefix:
            found["token"] = encoder.needed_readout.contributions(tap.value[:, :1], every)[:, :, 0]
    changes = output[1:] - output[:1]
    scale = float(changes.abs().max())
    assert scale > 1e-3, "the pictures are too alike to show anything"
    kind = (CLASSIFIERS if make is classifier else PAIRS)[name][3]
    fitting = [how for how, read in found.items() if (read[1:] - read[:1] - changes).abs().max() < 1e-3 * scale]
    assert fitting == ([] if kind == "neither" else [kind])
    assert encoder.needed_readout.exact is (kind != "neither")


@pytest.mark.parametrize(("make", "name"), KINDS)
def test_a_cell_is_what_a_picture_is_that_is_that_cell_everywhere(make: Callable[[str], nn.Module], name: str) -> None:
    ex = explained(make, name)
    encoder, images = ex.encoder, pictures(ex, 1)
    last = encoder.last_map(images)
    cells = torch.randn(1, 2, last.channels, generator=torch.Generator().manual_seed(3))

    def filled(cell: Tensor) -> Tensor:
        def everywhere(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
            output = original(*args, **kwargs)
            shape = (1, -1, 1, 1) if last.grid.layout == "NCHW" else (1, 1, -1)
            return cell.reshape(shape).expand_as(output).clone()

        with encoder.session() as hooks, torch.no_grad():
            hooks.replace_forward(last.layer, everywhere)
            return encoder.forward(images, hooks)[0]

    with encoder.session(), torch.no_grad():
        every = torch.eye(ex.encoder.geometry((size_of(encoder.model),) * 2).probe.output[1])[None]
        read = encoder.needed_readout.contributions(cells, every)[0].T
    expected = filled(cells[0, 0]) - filled(cells[0, 1])
    assert torch.allclose(read[0] - read[1], expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-4)


def test_what_is_pooled_and_never_read_is_no_part_of_the_readout() -> None:
    """The tower of a CLIP norms its class token even where a classifier averages the patches."""
    ex = explained(classifier, "clip")
    names = [step.name for step in ex.encoder.geometry((32, 32)).probe.steps]
    assert names.index("vision_model.post_layernorm") < names.index("classifier")
    assert ex.encoder.needed_readout.exact


@pytest.mark.parametrize(
    ("make", "name", "layer"),
    [
        (classifier, "vit", "2.layernorm_before"),
        (pair, "clip", "vision_model.encoder.layers.2.layer_norm1"),
        (classifier, "clip", "vision_model.encoder.layers.2"),
        (pair, "siglip", "vision_model.post_layernorm"),
    ],
)
def test_gradients_are_taken_where_patches_still_count(make: Callable[[str], nn.Module], name: str, layer: str) -> None:
    ex = explained(make, name)
    assert ex.encoder.gradient_map(pictures(ex)).layer.endswith(layer)


# Texts


@pytest.mark.parametrize("name", PAIRS)
def test_prompts_have_the_models_own_probabilities(name: str) -> None:
    """Of BLIP the model's own forward gives no such thing, so its towers are compared by hand."""
    ex = explained(pair, name)
    model, images, prompts = ex.encoder.model, pictures(ex), ["a red bus", "the very long street", "cat"]
    filled = {"padding": "max_length", "max_length": 16} if name == "siglip" else {"padding": True}
    tokens = tokenizer()(prompts, return_tensors="pt", **filled)
    tokens.pop("token_type_ids", None)
    with torch.no_grad():
        texts = F.normalize(model.get_text_features(**tokens).pooler_output, dim=-1)
        cosines = F.normalize(output_of(model, images), dim=-1) @ texts.T
        if name != "blip":
            logits = model(**tokens, pixel_values=images).logits_per_image
    e = ex(images, prompts, method="gradcam", score="logit")
    assert torch.allclose(e.scores, cosines, atol=1e-5)
    if name != "blip":
        expected = F.logsigmoid(logits) if name == "siglip" else logits.log_softmax(dim=1)
        assert torch.allclose(ex(images, prompts, method="gradcam", score="log_prob").scores, expected, atol=1e-4)


def test_what_a_prompt_means_does_not_depend_on_its_neighbours() -> None:
    model, images = explained(pair, "chinese clip").encoder.model, random_images(1, 32)
    bare = tokenizer(["input_ids"])  # says nothing of what is padding, unless asked
    alone = explainer.wrap(model, tokenizer=bare)(images, ["cat"], method="similarity")
    beside = explainer.wrap(model, tokenizer=bare)(
        images, ["the very very long red street", "cat"], method="similarity"
    )
    assert torch.allclose(alone.maps[:, 0], beside.maps[:, 1], atol=1e-6)


def test_templates() -> None:
    ex, images = explained(pair, "clip"), random_images(1, 32)
    photo = ex(images, ["bus"], templates="photo", method="similarity").maps
    assert torch.equal(photo, ex(images, ["a photo of a bus."], method="similarity").maps)
    assert not torch.allclose(photo, ex(images, ["bus"], method="similarity").maps, atol=1e-3)
    assert ex(images, ["bus"], templates="openai", method="similarity").maps.isfinite().all()


# Attention


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(("make", "name"), DENSE)
def test_attention_written_out_changes_nothing(
    make: Callable[[str], nn.Module], name: str, implementation: str
) -> None:
    encoder, images = explained(make, name, implementation).encoder, random_images(2, 32)
    assert encoder.model.config._attn_implementation == implementation
    with encoder.session() as hooks, torch.no_grad():
        expected = encoder.forward(images, hooks)
        tap = intercept(hooks, rule=ordinary)
        replaced = encoder.forward(images, hooks)
    assert len(tap.calls) >= len(encoder.geometry((32, 32)).blocks) == 3
    assert torch.allclose(replaced, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(("make", "name"), DENSE)
@pytest.mark.parametrize("method", ["gem", "self_self", "query_key"])
def test_both_implementations_of_attention_give_the_same_maps(
    make: Callable[[str], nn.Module], name: str, method: str
) -> None:
    images = random_images(2, 32)
    both = (explained(make, name, implementation) for implementation in ("eager", "sdpa"))
    found, expected = (ex(images, asked(ex), method=method).maps for ex in both)
    assert_same_maps(found, expected)


def _hidden(_module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_args: Any, **named: Any) -> Any:
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return flash(query, key, value, scale=named["scaling"])[0].transpose(1, 2).contiguous(), None


def test_attention_that_cannot_be_seen_is_told() -> None:
    transformers.AttentionInterface.register("hidden", _hidden)
    try:
        model = classifier("vit")
        model.set_attn_implementation("hidden")
        ex = explainer.wrap(model)
        assert "attention" not in ex.encoder.capabilities
        assert ex.encoder.warnings[-1] == (
            "the attention of transformers:ViTForImageClassification is computed by 'hidden', where it cannot be seen, "
            "so methods that need it do not fit; call model.set_attn_implementation('sdpa') before wrapping"
        )
        assert ex(random_images(1, 32), 1, method="cam").warnings == ex.encoder.warnings
    finally:
        transformers.AttentionInterface._global_mapping.pop("hidden")


@cache
def as_open_clip() -> tuple[explainer.Explainer, explainer.Explainer]:
    """A CLIP of open_clip, and one of transformers with the same picture tower."""
    model = clip_model("small")
    visual = copy.deepcopy(model.visual)
    vision = {
        "hidden_size": SMALL["width"],
        "num_hidden_layers": SMALL["layers"],
        "num_attention_heads": SMALL["width"] // SMALL["head_width"],
        "intermediate_size": 4 * SMALL["width"],
        "image_size": SMALL["image_size"],
        "patch_size": SMALL["patch_size"],
        "hidden_act": "gelu",
    }
    ours = small("CLIPModel", "CLIPConfig", vision_config=vision, text_config=TEXT, projection_dim=48)
    tower = ours.vision_model
    with torch.no_grad():
        tower.embeddings.patch_embedding.weight.copy_(visual.conv1.weight)
        tower.embeddings.class_embedding.copy_(visual.class_embedding)
        tower.embeddings.position_embedding.weight.copy_(visual.positional_embedding)
        ours.visual_projection.weight.copy_(visual.proj.T)
        for mine, its in ((tower.pre_layrnorm, visual.ln_pre), (tower.post_layernorm, visual.ln_post)):
            mine.load_state_dict(its.state_dict())
        for mine, its in zip(tower.encoder.layers, visual.transformer.resblocks, strict=True):
            parts = zip(its.attn.in_proj_weight.chunk(3), its.attn.in_proj_bias.chunk(3), strict=True)
            attention = mine.self_attn
            for layer, (weight, bias) in zip(
                (attention.q_proj, attention.k_proj, attention.v_proj), parts, strict=True
            ):
                layer.load_state_dict({"weight": weight, "bias": bias})
            pairs = (
                (attention.out_proj, its.attn.out_proj),
                (mine.layer_norm1, its.ln_1),
                (mine.layer_norm2, its.ln_2),
                (mine.mlp.fc1, its.mlp.c_fc),
                (mine.mlp.fc2, its.mlp.c_proj),
            )
            for layer, other in pairs:
                layer.load_state_dict(other.state_dict())
    return explainer.wrap(model), explainer.wrap(ours)


@pytest.mark.parametrize("method", ["gem", "self_self", "similarity", "cam", "gradcam", "query_key"])
def test_a_clip_gives_the_maps_of_the_same_clip_in_open_clip(method: str) -> None:
    images, targets = random_images(2, 32), random_directions(2, 48)
    options = {"relu": False} if method == "gradcam" else {}
    expected, found = (ex(images, targets, method=method, **options).maps for ex in as_open_clip())
    assert_same_maps(found, expected)
