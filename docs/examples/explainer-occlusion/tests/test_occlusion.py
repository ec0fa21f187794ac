"""What every method has to keep, tried on small models, and the definition, on a model that can be worked out."""

import torch
from torch import nn
from torch.nn import functional as F

import explainer
from explainer.testing import MethodContract


class TestOcclusion(MethodContract):
    method = "occlusion"


def test_the_map_of_a_linear_model_is_the_sum_below_each_square() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(3 * 12 * 8, 2)
    ex = explainer.wrap(nn.Sequential(nn.Flatten(), linear), size=(12, 8))
    images = torch.randn(3, 3, 12, 8)

    e = ex(images, [0, 1], method="occlusion", patch=4, stride=4, value=0.5, batch=4)

    shares = linear.weight.detach().view(1, 2, 3, 12, 8) * (images - 0.5).unsqueeze(1)
    assert e.maps.shape == (3, 2, 3, 2)
    torch.testing.assert_close(e.maps, F.avg_pool2d(shares.sum(2), 4) * 16)
    torch.testing.assert_close(e.scores, ex(images, [0, 1], method="occlusion", stride=12).scores)


def test_squares_that_reach_over_the_edge_are_cut_off() -> None:
    ex = explainer.wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2)), size=(8, 8))

    e = ex(torch.randn(1, 3, 8, 8), method="occlusion", patch=16, stride=4)

    assert e.maps.shape == (1, 1, 2, 2)
    torch.testing.assert_close(e.maps, e.maps[..., :1, :1].expand_as(e.maps))


def test_the_score_is_what_falls_and_no_layer_is_named() -> None:
    torch.manual_seed(0)
    ex = explainer.wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2)), size=(8, 8))
    image, covered = torch.randn(1, 3, 8, 8), torch.zeros(1, 3, 8, 8)

    e = ex(image, 1, method="occlusion", patch=16, stride=8, score="prob")

    expected = ex.encoder.model(image).softmax(dim=1) - ex.encoder.model(covered).softmax(dim=1)
    torch.testing.assert_close(e.maps[0, 0, 0], expected[0, 1:])
    assert (e.provenance.score, e.provenance.layer) == ("prob", None)
