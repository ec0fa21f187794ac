"""Learning a model's geometry from one run without numbers.

Modules made here: data-dependent ones, ones that cannot be copied, ones that keep tensors; a timm ViT, Swin,
CaiT, CoaT, SigLIP; an open_clip tower.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import built
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from core import attentions
from core.nets import snapshot
from explainer.layout import Grid
from explainer.probe import BATCH, AttentionStep, Probe, probe
from explainer.session import session

SEEN: list[str] = []
"""What runs of `Seen` were made of; outside of the model, where a copy notes it too."""


class Seen(nn.Module):
    """A network that notes whether it is run on numbers, and passes on what `like` makes of its map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 4, 4)
        self.act = nn.ReLU()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append("nothing" if isinstance(x, FakeTensor) else "numbers")
        return self.head(self.changed(self.act(self.stem(x))).flatten(2).mean(2))

    def changed(self, x: Tensor) -> Tensor:
        return x


class DataDependent(Seen):
    def changed(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x


class Locked(Seen):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Keeping(Seen):
    """Keeps a table in evaluation mode, and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, Tensor] = {}
        self.factor = torch.ones(1)

    def changed(self, x: Tensor) -> Tensor:
        if "table" not in self.tables:
            self.tables["table"] = torch.ones(1, 6, 1, 1) * 2
        return x * self.tables["table"] * self.factor


class Failing(Seen):
    def changed(self, x: Tensor) -> Tensor:
        raise ValueError("no")


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def seen(model: nn.Module, size: tuple[int, int] = (16, 16)) -> Probe:
    return probe(model, lambda running, images, _hooks: running(images), size)


def test_every_call_is_noted() -> None:
    found = seen(Seen())
    assert [(step.name, step.kind, step.shape) for step in found.steps] == [
        ("stem", "Conv2d", (BATCH, 6, 4, 4)),
        ("act", "ReLU", (BATCH, 6, 4, 4)),
        ("head", "Linear", (BATCH, 3)),
        ("", "Seen", (BATCH, 3)),
    ]
    assert [(step.start, step.end) for step in found.steps] == [(1, 2), (3, 4), (5, 6), (0, 7)]
    assert [step.grid for step in found.steps] == [Grid(4, 4, "NCHW"), Grid(4, 4, "NCHW"), None, None]
    assert (found.size, found.output, found.attentions) == ((16, 16), (BATCH, 3), ())


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", [Seen, Keeping])
def test_nothing_is_computed(kind: type[Seen], mode: Any, capfd: pytest.CaptureFixture[str]) -> None:
    model = kind().train()
    before = snapshot(model)
    with mode():
        seen(model)
    assert SEEN == ["nothing"]
    assert snapshot(model) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("warm", [False, True])
def test_a_model_that_keeps_tensors(warm: bool, capfd: pytest.CaptureFixture[str]) -> None:
    model = Keeping().eval()
    if warm:
        model(torch.zeros(1, 3, 16, 16))
        SEEN.clear()
    before = snapshot(model)
    assert seen(model).output == (BATCH, 3)
    assert SEEN == ["nothing"]
    assert snapshot(model) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("kind", "runs"), [(DataDependent, ["nothing", "numbers"]), (Locked, ["numbers"])])
def test_models_that_need_numbers(kind: type[Seen], runs: list[str]) -> None:
    model = kind().train()
    before = snapshot(model)
    found = seen(model)
    assert runs == SEEN
    assert [step.grid for step in found.steps[:2]] == [Grid(4, 4, "NCHW")] * 2
    assert snapshot(model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_models_own_type(dtype: torch.dtype) -> None:
    assert seen(DataDependent().to(dtype)).output == (BATCH, 3)
    assert seen(Seen().to(dtype)).output == (BATCH, 3)
    assert SEEN == ["nothing", "numbers", "nothing"]


def test_a_model_without_weights() -> None:
    assert seen(nn.Sequential(nn.AvgPool2d(4), nn.Flatten())).steps[0].grid == Grid(4, 4, "NCHW")


def test_an_error_of_the_model_is_shown_as_it_is() -> None:
    model = Failing().train()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"^no$"):
        seen(model)
    assert snapshot(model) == before


def test_an_input_that_the_model_cannot_take() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.Flatten(), nn.Linear(64, 2))
    assert seen(model).output == (BATCH, 2)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        seen(model, (32, 32))


def test_another_thread_is_not_disturbed() -> None:
    model, inside, done = Seen(), threading.Event(), threading.Event()
    found: list[Probe] = []

    def look() -> None:
        assert inside.wait(20)
        found.append(seen(model))
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    with session(model) as hooks:
        tap = hooks.tap("stem")
        inside.set()
        assert not done.wait(0.2)
        model(torch.zeros(1, 3, 16, 16))
        assert len(tap.records) == 1
    thread.join(20)
    assert found[0].output == (BATCH, 3)


def test_a_session_in_the_same_thread_is_not_disturbed() -> None:
    model = Seen()
    with session(model) as hooks:
        taps = hooks.tap("stem", differentiable=True), hooks.tap("act", of="input")
        seen(model)
        model(torch.zeros(1, 3, 16, 16))
        assert [len(tap.records) for tap in taps] == [1, 1]


def test_hooks_of_the_user_are_not_told_of_the_probe() -> None:
    model, told = Seen(), list[object]()
    model.stem.register_forward_hook(lambda _module, _args, output: told.append(output))
    model.register_forward_pre_hook(lambda _module, args: told.append(args))
    seen(model)
    assert told == []
    model(torch.zeros(1, 3, 16, 16))
    assert len(told) == 2


class Folded(nn.Module):
    """Windows and heads are folded into the batch: four times as many, and a quarter of the tokens each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fold, self.out = nn.Conv2d(3, 4, 4, 4), nn.Identity(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        windows = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 4, 4, 4)
        return self.out(self.fold(windows).reshape(x.shape[0], 4, -1).mean(dim=2))


def test_what_is_folded_into_the_batch_is_no_map() -> None:
    grids = {step.name: step.grid for step in seen(Folded(), (32, 32)).steps}
    assert grids == {"stem": Grid(8, 8, "NCHW"), "fold": None, "out": None, "": None}


class Several(nn.Module):
    """Gives a tuple inside, and runs one module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pair, self.head = nn.Conv2d(3, 3, 3, 1, 1), Pair(), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pair(self.stem(self.stem(x)))[0])


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean((2, 3)), x


def test_tuples_and_repetitions() -> None:
    steps = seen(Several()).steps
    assert [step.name for step in steps] == ["stem", "stem", "pair", "head", ""]
    assert [step.shape for step in steps][2] is None
    assert steps[0].end < steps[1].start


def test_dense_attention() -> None:
    found = seen(attentions.model_of("deit distilled"), (64, 64))
    grid = Grid(4, 4, "NLC", 2)
    assert [(step.name, step.query, step.key, step.grid) for step in found.attentions] == [
        (name, (BATCH, 4, 18, 16), (BATCH, 4, 18, 16), grid) for name in attentions.FAMILIES["deit distilled"].owners
    ]
    assert found.inside_attention("blocks.0.attn")
    assert found.inside_attention("blocks.0.attn.proj")
    assert not found.inside_attention("blocks.0.attn_of_another_name")
    assert not found.inside_attention("blocks.0")
    starts = {step.name: step.start for step in found.steps}
    assert all(attention.start == starts[attention.name] for attention in found.attentions)


@pytest.mark.parametrize(("family", "side"), [("swin", 56), ("clip resnet", 96)])
def test_attention_that_is_not_over_patch_tokens(family: str, side: int) -> None:
    found = seen(attentions.model_of(family), (side, side)).attentions
    assert [step.name for step in found] == attentions.FAMILIES[family].owners
    windows = [step for step in found if step.query[0] != BATCH]
    assert all(step.grid is None for step in windows)
    assert bool(windows) is (family == "swin")


def test_attention_that_pools() -> None:
    last = seen(attentions.model_of("siglip"), (64, 64)).attentions[-1]
    assert last == AttentionStep("attn_pool", last.start, (BATCH, 4, 1, 16), (BATCH, 4, 16, 16), None)


def test_modules_that_mix_cells() -> None:
    """CaiT's talking heads are attention; CoaT's factorised attention, a softmax over the tokens, is none."""
    names = [name for name, _ in sorted(seen(attentions.model_of("cait"), (64, 64)).mixers, key=lambda pair: pair[1])]
    assert names == attentions.FAMILIES["cait"].owners
    factorised = built(
        lambda: timm.create_model("coat_lite_tiny", num_classes=3, img_size=64, serial_depths=(1, 1, 1, 1))
    )
    found = seen(factorised, (64, 64))
    assert found.attentions == ()
    names = [name for name, _ in sorted(found.mixers, key=lambda pair: pair[1])]
    assert names == [f"serial_blocks{stage}.0.factoratt_crpe" for stage in (1, 2, 3, 4)]


class Registers(nn.Module):
    """Tokens behind a number of others that two parts state differently, or one states."""

    def __init__(self, *stated: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 4, 4, 4)
        self.parts = nn.ModuleList([nn.Identity() for _ in stated])
        for part, number in zip(self.parts, stated, strict=True):
            part.num_prefix_tokens = number
        self.tokens = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        return self.tokens(torch.cat([x[:, :3], x], dim=1))[:, 0]


@pytest.mark.parametrize("stated", [(), (3,), (3, 3), (1, 3), (2,)], ids=str)
def test_prefix_tokens_that_are_stated(stated: tuple[int, ...]) -> None:
    grids = {step.name: step.grid for step in seen(Registers(*stated)).steps}
    assert grids["tokens"] == Grid(4, 4, "NLC", 3)


@pytest.mark.parametrize("how", ["a function with a cache", "a decorator that makes caches"])
def test_no_tensor_without_data_reaches_a_cache_of_the_process(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @functools.lru_cache
    def table(device: torch.device) -> Tensor:
        return torch.ones(1, 6, 1, 1, device=device) * 2

    class Shares(Seen):
        def changed(self, x: Tensor) -> Tensor:
            return x * table(x.device)

    home = types.ModuleType("sharing")
    home.__dict__.update({"table": table} if how.startswith("a function") else {"method_lru_cache": None})
    monkeypatch.setitem(sys.modules, "sharing", home)
    monkeypatch.setattr(Shares, "__module__", "sharing")
    assert seen(Shares()).output == (BATCH, 3)
    assert SEEN == ["numbers"]
    assert not isinstance(table(torch.device("cpu")), FakeTensor)


def test_a_function_that_belongs_to_the_model_itself_is_followed() -> None:
    model = Seen()
    own = model.forward
    model.forward = lambda x: own(x)  # a copy of the model runs the model, not itself
    assert [step.name for step in seen(model).steps] == ["stem", "act", "head", ""]


class Raises(Seen):
    """Tells nothing of its prefix tokens."""

    @property
    def num_prefix_tokens(self) -> int:
        raise RuntimeError("not known")


def test_a_property_that_raises() -> None:
    assert seen(Raises()).output == (BATCH, 3)
