"""Grad-CAM (Selvaraju et al. 2017, arXiv:1610.02391)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.encoder import Encoder, image_size
from explainer.hooks import LayerError
from explainer.target import Targets

if TYPE_CHECKING:
    from explainer_plugins.cam import GradCAM


def run(config: GradCAM, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map L_t = ReLU(sum_k alpha_k^t A^k), with alpha the mean gradient over the cells: equations 1 and 2.

    Prefix tokens are no cells: they take no part in the mean and have no place on the map. All targets are
    differentiated from one forward pass.

    Args:
        config: Layer, and whether to keep the sign.
        encoder: Needs features and gradients.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w], at least 0 with `relu`, signed without.

    Raises:
        LayerError: The layer does not lie on the picture, or no cell of it reaches the score.
    """
    geometry = encoder.geometry(image_size(images))
    layer = config.layer or encoder.gradient_map(images).layer
    grid = geometry.grid(layer)
    with encoder.session() as hooks:
        tap = hooks.tap(layer, differentiable=True)
        scores = targets.scores(encoder.forward(images, hooks))
        gradients = tap.gradients(scores)
    activation = grid.to_map(tap.value.detach()).float()
    maps: list[Tensor] = []
    for gradient in gradients:
        slope = grid.to_map(gradient).float()
        if not slope.any():
            raise LayerError(_flat(layer, encoder, images, bool(gradient.any())))
        alpha = slope.mean(dim=(2, 3), keepdim=True)
        maps.append((alpha * activation).sum(dim=1))
    result = torch.stack(maps, dim=1)
    if not config.relu:
        return result
    if bool((result <= 0).all(dim=(2, 3)).any()):
        targets.notes.append("all evidence for some target is negative, and Grad-CAM cuts it off; relu=False shows it")
    return result.relu()


def _flat(layer: str, encoder: Encoder, images: Tensor, prefix_reached: bool) -> str:
    better = encoder.gradient_map(images).layer
    if prefix_reached and better != layer:
        return (
            f"behind layer '{layer}' the model only reads its class token, so no patch has a gradient there and the "
            f"map would be all zero; use layer='{better}'"
        )
    return (
        f"the gradient at layer '{layer}' is zero everywhere, so the map would be all zero; the score does not change "
        "with this layer (a head whose weights are still zero, or a saturated score: try score='logit')"
    )
