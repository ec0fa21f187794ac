"""Scores: their values and gradients against the formulas, and functions in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles.helpers import FakeTokenizer, clip, clip_model, random_directions, random_images
from torch import Tensor, nn

import explainer
from explainer.score import Answer
from explainer.target import Targets, parse

from .common import message, resnet

CLASSES = [3, 0, 5]


@pytest.fixture(scope="module")
def classifier() -> explainer.Explainer:
    return explainer.wrap(resnet(num_classes=7))


@pytest.fixture(scope="module")
def clips() -> explainer.Explainer:
    return explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer())


def siglip(bias: float = -10.0) -> nn.Module:
    """A CLIP that gives every prompt a probability of its own."""
    model = clip({"layers": 2, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32})
    model.logit_bias = nn.Parameter(torch.tensor(bias))
    return model.eval()


def scored(ex: explainer.Explainer, outputs: Tensor, targets: Any, score: str) -> Tensor:
    """The scores [B, T] of outputs that a model might have given."""
    function, name = ex._score(score, _Gradient)
    return Targets(ex.encoder, parse(targets, ex.encoder, None), len(outputs), function, name).scores(outputs)


class _Gradient:
    """A method that takes gradients, as far as scores are concerned."""

    name = "gradient"
    reads_score = True


def slopes(scores: Tensor, outputs: Tensor) -> Tensor:
    """[B, T, D], the gradient of each score with respect to its own output."""
    rows = [torch.autograd.grad(scores[:, t].sum(), outputs, retain_graph=True)[0] for t in range(scores.shape[1])]
    return torch.stack(rows, dim=1)


def outputs_of(width: int, batch: int = 4, scale: float = 2) -> Tensor:
    return (torch.randn(batch, width, generator=torch.Generator().manual_seed(3)) * scale).requires_grad_()


def test_logit_of_a_classifier(classifier: explainer.Explainer) -> None:
    outputs = outputs_of(7)
    scores = scored(classifier, outputs, CLASSES, "logit")
    assert torch.equal(scores, outputs[:, CLASSES])
    assert torch.equal(slopes(scores, outputs), torch.eye(7)[CLASSES].expand(4, -1, -1))


def test_log_prob_of_a_classifier(classifier: explainer.Explainer) -> None:
    """z_c - log sum exp z; its slope is one-hot minus the probabilities."""
    outputs = outputs_of(7)
    scores = scored(classifier, outputs, CLASSES, "log_prob")
    with torch.no_grad():
        probs = outputs.exp() / outputs.exp().sum(dim=1, keepdim=True)
        assert torch.allclose(scores, probs[:, CLASSES].log(), atol=1e-6)
    assert torch.allclose(slopes(scores, outputs), torch.eye(7)[CLASSES] - probs[:, None], atol=1e-6)


def test_prob_of_a_classifier(classifier: explainer.Explainer) -> None:
    outputs = outputs_of(7)
    scores = scored(classifier, outputs, CLASSES, "prob")
    with torch.no_grad():
        probs = outputs.exp() / outputs.exp().sum(dim=1, keepdim=True)
        expected = probs[:, CLASSES, None] * (torch.eye(7)[CLASSES] - probs[:, None])
        assert torch.allclose(scores, probs[:, CLASSES], atol=1e-6)
    assert torch.allclose(slopes(scores, outputs), expected, atol=1e-6)


def test_logits_far_apart_stay_finite(classifier: explainer.Explainer) -> None:
    outputs = torch.tensor([[500.0, -500, 0, 0, 0, 0, 0]], requires_grad=True)
    scores = scored(classifier, outputs, [0, 1], "log_prob")
    assert torch.equal(scores, torch.tensor([[0.0, -1000.0]]))
    assert slopes(scores, outputs).isfinite().all()


def test_a_direction_over_several_classes_has_no_probability(classifier: explainer.Explainer) -> None:
    for score in ("prob", "log_prob"):
        assert message(lambda score=score: classifier(random_images(1, 64), torch.ones(7), score=score)) == (
            "a direction over several classes has no probability; ask for classes, or explain it with score='logit'"
        )
    one_hot = torch.eye(7)[3]
    e = classifier(random_images(1, 64), one_hot, score="prob")
    assert torch.equal(e.maps, classifier(random_images(1, 64), 3, score="prob").maps)


def test_the_only_class_has_no_probability() -> None:
    ex = explainer.wrap(resnet(num_classes=1))
    for score in ("prob", "log_prob"):
        assert message(lambda score=score: ex(random_images(1, 64), 0, method="gradcam", score=score)) == (
            "the probability of the only class of timm:resnet18 is always 1; explain it with score='logit'"
        )


def test_logit_of_a_clip_is_the_cosine(clips: explainer.Explainer) -> None:
    """Its slope is (t - cos x / |x|) / |x| for unit t."""
    outputs, rows = outputs_of(48), random_directions(3, 48)
    scores = scored(clips, outputs, rows * torch.tensor([[1.0], [5.0], [0.1]]), "logit")
    with torch.no_grad():
        length = outputs.norm(dim=1, keepdim=True)
        cosines = outputs @ rows.T / length
        expected = (rows - cosines[..., None] * (outputs / length)[:, None]) / length[..., None]
        assert torch.allclose(scores, cosines, atol=1e-6)
    assert torch.allclose(slopes(scores, outputs), expected, atol=1e-6)


@pytest.mark.parametrize("score", ["log_prob", "prob"])
def test_probabilities_of_a_clip_are_shared_out_among_the_prompts(clips: explainer.Explainer, score: str) -> None:
    outputs, rows = outputs_of(48), random_directions(3, 48)
    scores = scored(clips, outputs, rows, score)
    cosines = scored(clips, outputs, rows, "logit")
    factor = clips.encoder.model.logit_scale.exp().detach()
    with torch.no_grad():
        probs = (factor * cosines).exp() / (factor * cosines).exp().sum(dim=1, keepdim=True)
        assert torch.allclose(scores, probs.log() if score == "log_prob" else probs, atol=1e-5)
        # d log p_t / dx = factor * sum_s (1[s = t] - p_s) d cos_s / dx
        inner = slopes_of_cosines(outputs, rows)
        expected = factor * torch.einsum("bts,bsd->btd", torch.eye(3) - probs[:, None], inner)
        expected = expected if score == "log_prob" else probs[..., None] * expected
    assert torch.allclose(slopes(scores, outputs), expected, atol=1e-5)


def slopes_of_cosines(outputs: Tensor, rows: Tensor) -> Tensor:
    length = outputs.norm(dim=1, keepdim=True)
    cosines = outputs @ rows.T / length
    return (rows - cosines[..., None] * (outputs / length)[:, None]) / length[..., None]


def test_a_single_prompt_has_no_probability(clips: explainer.Explainer) -> None:
    for score in ("prob", "log_prob"):
        assert message(lambda score=score: clips(random_images(1, 32), "a bus", method="gradcam", score=score)) == (
            "the probability of a single prompt is always 1, because it is shared out among the prompts that are "
            "asked; ask for at least two, or explain the similarity itself with score='logit'"
        )


@pytest.mark.parametrize("prompts", [1, 3])
@pytest.mark.parametrize("score", ["log_prob", "prob"])
def test_a_siglip_gives_every_prompt_its_own_probability(score: str, prompts: int) -> None:
    ex = explainer.wrap(siglip(), tokenizer=FakeTokenizer())
    outputs, rows = outputs_of(48), random_directions(prompts, 48)
    scores = scored(ex, outputs, rows, score)
    with torch.no_grad():
        factor = ex.encoder.model.logit_scale.exp()
        logits = factor * scored(ex, outputs, rows, "logit") - 10
        probs = 1 / (1 + (-logits).exp())
        inner = factor * slopes_of_cosines(outputs, rows)
        assert torch.allclose(scores, probs if score == "prob" else probs.log(), atol=1e-5)
        # d log sigma(z) / dz = 1 - sigma(z)
        outer = (1 - probs) * (probs if score == "prob" else 1)
    assert torch.allclose(slopes(scores, outputs), outer[..., None] * inner, atol=1e-5)


def test_the_scale_is_read_anew_and_is_not_differentiated() -> None:
    model = siglip(0.0)
    ex = explainer.wrap(model, tokenizer=FakeTokenizer())
    outputs, rows = outputs_of(48), random_directions(2, 48)
    before = scored(ex, outputs, rows, "prob")
    with torch.no_grad():
        model.logit_scale.zero_()
    after = scored(ex, outputs, rows, "prob")
    assert not torch.allclose(before, after)
    assert torch.allclose(after, torch.sigmoid(scored(ex, outputs, rows, "logit")), atol=1e-6)
    after.sum().backward()
    assert model.logit_scale.grad is None


# Scores in a whole run


@pytest.mark.parametrize("score", ["logit", "log_prob", "prob"])
def test_gradcam_of_each_score(classifier: explainer.Explainer, score: str) -> None:
    """Behind average pooling and a linear head the gradient is the slope of the score through the rows."""
    images, model = random_images(2, 64), classifier.encoder.model
    e = classifier(images, CLASSES, method="gradcam", score=score, relu=False)
    with torch.no_grad():
        features = model.forward_features(images)
        logits = model(images)
        probs = logits.softmax(dim=1)
        over = torch.eye(7)[CLASSES].expand(2, -1, -1)
        values = logits[:, CLASSES]
        if score != "logit":
            over, values = over - probs[:, None], logits.log_softmax(dim=1)[:, CLASSES]
        if score == "prob":
            over, values = probs[:, CLASSES, None] * over, probs[:, CLASSES]
        weights = over @ model.fc.weight / (features.shape[2] * features.shape[3])
        expected = torch.einsum("btc,bchw->bthw", weights, features)
    assert torch.allclose(e.maps, expected, atol=1e-4 * float(expected.abs().max()))
    assert torch.allclose(e.scores, values, atol=1e-4)
    assert e.provenance.score == score


def margin(answer: Answer) -> Tensor:
    """How far a class is above the mean of all."""
    return answer.logits - answer.outputs.mean(dim=1, keepdim=True)


def test_a_function_as_the_score(classifier: explainer.Explainer) -> None:
    images = random_images(2, 64)
    e = classifier(images, CLASSES, method="gradcam", score=margin)
    with torch.no_grad():
        logits = classifier.encoder.model(images)
    assert torch.allclose(e.scores, logits[:, CLASSES] - logits.mean(dim=1, keepdim=True), atol=1e-5)
    assert e.provenance.score == "margin"
    direction = torch.eye(7)[CLASSES] - 1 / 7
    assert torch.allclose(e.maps, classifier(images, direction, method="gradcam").maps, atol=1e-5)


def test_a_function_of_the_log_probabilities(classifier: explainer.Explainer) -> None:
    images = random_images(2, 64)
    e = classifier(images, CLASSES, method="gradcam", score=lambda answer: answer.log_probs())
    named = classifier(images, CLASSES, method="gradcam", score="log_prob")
    assert torch.equal(e.maps, named.maps)
    assert e.provenance.score == "<lambda>"


def test_an_object_as_the_score(classifier: explainer.Explainer) -> None:
    class Doubled:
        def __call__(self, answer: Answer) -> Tensor:
            return 2 * answer.logits

    images = random_images(2, 64)
    e = classifier(images, CLASSES, method="gradcam", score=Doubled())
    assert torch.allclose(e.maps, 2 * classifier(images, CLASSES, method="gradcam").maps, atol=1e-5)
    assert e.provenance.score == "Doubled"


def test_one_scalar_for_each_picture_will_do_for_one_target(classifier: explainer.Explainer) -> None:
    images = random_images(2, 64)
    e = classifier(images, 3, method="gradcam", score=lambda answer: answer.logits[:, 0])
    assert torch.equal(e.maps, classifier(images, 3, method="gradcam").maps)


@pytest.mark.parametrize(
    ("score", "shape"),
    [
        (lambda answer: answer.outputs, "[2, 7]"),
        (lambda answer: answer.logits.sum(), "[]"),
        (lambda answer: answer.logits[:, 0], "[2]"),
        (lambda answer: answer.logits.T, "[3, 2]"),
    ],
)
def test_a_score_of_another_shape(
    classifier: explainer.Explainer, score: Callable[[Answer], Tensor], shape: str
) -> None:
    assert message(lambda: classifier(random_images(2, 64), CLASSES, method="gradcam", score=score)) == (
        f"score '<lambda>' gave a tensor of shape {shape}; expected [2, 3], one scalar for each picture and target "
        "(the target's raw scores are answer.logits)"
    )


@pytest.mark.parametrize(("value", "kind"), [(1.0, "float"), (None, "NoneType"), ([1.0], "list")])
def test_a_score_that_is_no_tensor(classifier: explainer.Explainer, value: Any, kind: str) -> None:
    assert message(lambda: classifier(random_images(2, 64), CLASSES, method="gradcam", score=lambda _: value)) == (
        f"score '<lambda>' gave a {kind}; it has to give a tensor of shape [2, 3], one scalar for each picture and "
        "target"
    )


def test_what_a_score_raises_is_not_hidden(classifier: explainer.Explainer) -> None:
    def broken(answer: Answer) -> Tensor:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match=r"^mine$"):
        classifier(random_images(2, 64), CLASSES, method="gradcam", score=broken)


def test_a_score_without_a_gradient(classifier: explainer.Explainer) -> None:
    text = message(
        lambda: classifier(random_images(2, 64), CLASSES, method="gradcam", score=lambda answer: answer.logits.detach())
    )
    assert text == (
        "the score does not depend on layer 'layer4', so it has no gradient there; choose a layer between the picture "
        "and the score (ex.inspect() lists them)"
    )


@pytest.mark.parametrize(("score", "name"), [("prob", "prob"), ("log_prob", "log_prob"), (margin, "margin")])
@pytest.mark.parametrize("method", ["cam", "similarity"])
def test_a_score_with_a_method_that_takes_no_gradient(
    classifier: explainer.Explainer, method: str, score: Any, name: str
) -> None:
    assert message(lambda: classifier(random_images(2, 64), 3, method=method, score=score)) == (
        f"method '{method}' does not read the score, so score='{name}' would change nothing; leave the score out, "
        "or use a method that does, such as gradcam"
    )


def test_a_function_is_no_default_whatever_it_is_called(classifier: explainer.Explainer) -> None:
    def logit(answer: Answer) -> torch.Tensor:
        return answer.logits

    assert "score='logit' would change nothing" in message(
        lambda: classifier(random_images(2, 64), 3, method="cam", score=logit)
    )


def test_a_score_that_does_not_exist(classifier: explainer.Explainer) -> None:
    assert message(lambda: classifier(random_images(2, 64), 3, method="gradcam", score="log-prob")) == (
        "no score named 'log-prob'; did you mean 'log_prob'? (available: log_prob, logit, prob)"
    )


@pytest.mark.parametrize("score", [3, None, ["logit"]])
def test_what_is_no_score(classifier: explainer.Explainer, score: Any) -> None:
    assert message(lambda: classifier(random_images(2, 64), 3, method="gradcam", score=score)) == (
        f"a score is a name (log_prob, logit, prob) or a function of an Answer; got {score!r}"
    )
