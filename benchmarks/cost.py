"""What an explanation costs, as a ratio to one plain forward pass of the same batch.

    python benchmarks/cost.py [--rounds 7] [--batch 1]

All variants run in one process, one thread, in turn, and CPU time is compared: the ratios hold on a busy
machine, absolute times do not. Weights are random. Peers are measured beside it where they are installed:
pytorch-grad-cam (grad-cam), TorchCAM (torchcam), Captum (captum), gem-torch (gem_torch).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import open_clip
import timm
import torch
from torch import Tensor, nn

import explainer
from explainer.session import session

Run = Callable[[], object]
PROMPTS = 80


def interleaved(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Time each variant once a round, in turn; give the median CPU seconds of each."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def report(title: str, runs: dict[str, Run], rounds: int) -> None:
    """Print the ratio of each variant to the first."""
    medians = interleaved(runs, rounds)
    (base_name, base), *others = medians.items()
    print(f"\n{title}\n  {base_name}: {base * 1000:.0f} ms of CPU")
    for name, seconds in others:
        print(f"  {name:<34} {seconds / base:5.2f}")


def plain(model: nn.Module, images: Tensor) -> Run:
    """One forward pass as a user would run it."""

    def run() -> None:
        with torch.inference_mode():
            model(images)

    return run


def gradcam_peers(model: nn.Module, layer: nn.Module, images: Tensor, tokens: bool) -> dict[str, Run]:
    """Grad-CAM of every peer that is installed."""
    runs: dict[str, Run] = {}
    if find_spec("captum"):
        from captum.attr import LayerGradCam

        runs["captum LayerGradCam"] = lambda: LayerGradCam(model, layer).attribute(images, target=1)
    if find_spec("torchcam"):
        runs["TorchCAM GradCAM"] = lambda: torchcam(model, layer, images)
    if find_spec("pytorch_grad_cam"):
        runs["pytorch-grad-cam GradCAM"] = lambda: grad_cam(model, layer, images, tokens)
    return runs


def torchcam(model: nn.Module, layer: nn.Module, images: Tensor) -> None:
    """TorchCAM's Grad-CAM; it needs a graph, so the input asks for one."""
    from torchcam.methods import GradCAM

    with GradCAM(model, layer) as extractor:
        extractor(1, model(images.requires_grad_()))


def grad_cam(model: nn.Module, layer: nn.Module, images: Tensor, tokens: bool) -> None:
    """pytorch-grad-cam's Grad-CAM."""
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    def to_map(x: Tensor) -> Tensor:
        return x[:, 1:].transpose(1, 2).unflatten(2, (14, 14))

    with GradCAM(model, [layer], reshape_transform=to_map if tokens else None) as cam:
        cam(images, [ClassifierOutputTarget(1)] * len(images))


@contextlib.contextmanager
def saved_bytes() -> Iterator[Callable[[], int]]:
    """Count the bytes that autograd keeps for backward, weights left out."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter) and tensor._base is None:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(storages.values())


def memory(name: str, model: nn.Module, images: Tensor) -> None:
    """Print what Grad-CAM keeps for backward, beside what a whole graph keeps."""
    with saved_bytes() as whole:
        model(images)
    ex = explainer.wrap(model)
    ex(images, 1, method="gradcam")
    with saved_bytes() as ours:
        ex(images, 1, method="gradcam")
    print(f"  {name:<34} {ours() / 2**20:6.1f} MiB of {whole() / 2**20:.1f} MiB")


def gradcam(name: str, layer: str, batch: int, rounds: int) -> None:
    """Grad-CAM of a timm model."""
    model = timm.create_model(name).eval()
    images = torch.randn(batch, 3, 224, 224)
    ex = explainer.wrap(model)
    runs: dict[str, Run] = {"plain forward": plain(model, images)}
    runs["explainer, one target"] = lambda: ex(images, 1, method="gradcam")
    runs["explainer, five targets"] = lambda: ex(images, [1, 2, 3, 4, 5], method="gradcam")
    runs |= gradcam_peers(model, model.get_submodule(layer), images.clone(), "blocks" in layer)
    report(f"Grad-CAM, {name}, batch {batch}", runs, rounds)
    print(" kept for backward:")
    memory(name, model, images)


def gem(size: int, rounds: int) -> None:
    """GEM with cached prompts on ViT-B/16."""
    model = open_clip.create_model("ViT-B-16", load_weights=False).eval()
    prompts = [f"thing number {index}" for index in range(PROMPTS)]
    images = torch.randn(1, 3, size, size)
    ex = explainer.wrap(model, tokenizer=open_clip.get_tokenizer("ViT-B-16"))

    def encode() -> None:
        with session(model) as hooks, torch.no_grad():
            ex.encoder.forward(images, hooks)

    runs: dict[str, Run] = {"encode_image": encode}
    runs[f"explainer gem, {PROMPTS} cached prompts"] = lambda: ex(images, prompts, method="gem")
    runs["explainer similarity"] = lambda: ex(images, prompts, method="similarity")
    if find_spec("gem") and size == model.visual.image_size[0]:
        runs[f"gem-torch, {PROMPTS} prompts"] = gem_torch(images, prompts)
    report(f"GEM, ViT-B/16 at {size}", runs, rounds)


def gem_torch(images: Tensor, prompts: list[str]) -> Run:
    """gem-torch on a model of its own, set right for today's batch-first blocks."""
    from gem.gem_wrapper import GEMWrapper

    model = open_clip.create_model("ViT-B-16", load_weights=False).eval()
    for block in model.visual.transformer.resblocks:
        block.attn.batch_first = False
    wrapper = GEMWrapper(model, open_clip.get_tokenizer("ViT-B-16"))

    def run() -> None:
        with torch.no_grad():
            wrapper(images, prompts)

    return run


def main() -> None:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gradcam("resnet50", "layer4.2", arguments.batch, arguments.rounds)
    gradcam("vit_base_patch16_224", "blocks.11.norm1", arguments.batch, arguments.rounds)
    for size in (224, 448):
        gem(size, arguments.rounds)


if __name__ == "__main__":
    main()
