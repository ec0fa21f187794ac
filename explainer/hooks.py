"""Every change ever made to a model is made through a :class:`HookManager` and undone by it.

Full backward hooks are deliberately absent: they fail on networks that work in place. A gradient is
taken with :func:`torch.autograd.grad` with respect to the tapped tensor alone.
"""

from __future__ import annotations

import difflib
import fnmatch
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from explainer.restore import putting_back, refill
from explainer_registry import ExplainerError

Entered = TypeVar("Entered")


class LayerError(ExplainerError):
    """A layer that does not exist, did not run, or gave nothing that can be explained."""


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return every module of a model by its dotted path; the model itself is ""."""
    return dict(cast("Iterator[tuple[str, nn.Module]]", model.named_modules()))


class Tap:
    """What one module passed on (or received), call by call.

    Attributes:
        name: Dotted path of the module.
        records: One tensor per call of the module, in the order of the calls. A module that runs twice
            in one forward pass has two.
    """

    def __init__(
        self, name: str, of: Literal["output", "input"], select: int | str | None, differentiable: bool
    ) -> None:
        self.name = name
        self.records: list[Tensor] = []
        self._verb = "gives" if of == "output" else "receives"
        self._select = select
        self._differentiable = differentiable

    @property
    def value(self) -> Tensor:
        """The one tensor that the module gave.

        Raises:
            LayerError: The module did not run, or ran more than once.
        """
        if len(self.records) == 1:
            return self.records[0]
        if not self.records:
            raise LayerError(
                f"layer '{self.name}' did not run in this forward pass, so there is nothing to read; "
                "choose a layer that the model calls (ex.inspect() lists them)"
            )
        raise LayerError(
            f"layer '{self.name}' ran {len(self.records)} times in one forward pass; "
            "read its records, in the order of the calls, instead of its one value"
        )

    def gradients(self, scores: Tensor) -> Tensor:
        """Differentiate each column of scores with respect to the tapped tensor.

        Args:
            scores: [B, T], one row per picture. Pictures must not influence each other.

        Returns:
            [T, *value.shape]; the slice [t, b] is the gradient of ``scores[b, t]``.

        Raises:
            LayerError: The scores do not depend on the tapped layer.
        """
        value = self.value
        if not scores.requires_grad:
            raise LayerError(self._unreached())
        slices: list[Tensor] = []
        for column in scores.unbind(dim=1):
            # The graph is kept for other taps of the same run; it goes with the scores.
            (gradient,) = torch.autograd.grad(column.sum(), value, retain_graph=True, allow_unused=True)
            if gradient is None:  # pyright: ignore[reportUnnecessaryComparison]  allow_unused gives None
                raise LayerError(self._unreached())
            slices.append(gradient)
        return torch.stack(slices)

    def _unreached(self) -> str:
        return (
            f"the score does not depend on layer '{self.name}', so it has no gradient there; "
            "choose a layer between the picture and the score (ex.inspect() lists them)"
        )

    def _record(self, value: Any) -> Any:
        """Keep the tensor and hand the model a copy, so that in-place operations cannot change the record."""
        if isinstance(value, Tensor):
            kept, passed = self._keep(value)
            self.records.append(kept)
            return passed
        if self._select is None:
            raise LayerError(self._not_a_tensor(value))
        try:
            kept, passed = self._keep(value[self._select])
        except (KeyError, IndexError, TypeError, AttributeError):
            raise LayerError(self._not_a_tensor(value)) from None
        self.records.append(kept)
        if isinstance(value, tuple):
            kind = cast("Any", type(value))  # pyright: ignore[reportUnknownArgumentType]
            parts = list(cast("tuple[Any, ...]", value))
            parts[cast("int", self._select)] = passed
            return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
        copy = value.copy()
        copy[self._select] = passed
        return copy

    def _keep(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        if not self._differentiable:
            return tensor.clone(), tensor
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise LayerError(f"layer '{self.name}' {self._verb} {kind} numbers, which have no gradient")
        if tensor.is_inference():
            tensor = tensor.clone()
        # Nothing below the tap has a graph: the activation itself becomes the leaf. Where a graph is
        # already there (a module that runs twice, an earlier tap) it must not be cut.
        leaf = tensor if tensor.requires_grad else tensor.detach().requires_grad_()
        return leaf, leaf.clone()

    def _not_a_tensor(self, value: Any) -> str:
        return (
            f"layer '{self.name}' {self._verb} a {type(value).__name__}, not one tensor; "
            f"tap one part of it with select=0, select=1 or a key (select={self._select!r} was given)"
        )


class HookManager:
    """Attach hooks, replacements and flags to a model, and undo all of it with one verb.

    Use it as a context manager; leaving the block undoes everything in reverse order, whatever was
    raised inside. Managers nest, and one may be used again after :meth:`undo`.

    Example:
        >>> import torch
        >>> from explainer.hooks import HookManager
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        >>> with HookManager(model) as hooks:
        ...     tap = hooks.tap("0")
        ...     _ = model(torch.zeros(1, 2))
        >>> tap.value.shape
        torch.Size([1, 3])
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._changes = ExitStack()
        self._within: dict[Any, HookManager] = {}

    def __enter__(self) -> HookManager:
        return self

    def __exit__(self, *raised: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Take back every change, last one first. Calling it twice does no harm."""
        self._within.clear()
        self._changes.close()

    def afresh(self, owner: Any) -> HookManager:
        """Return a manager within this one for what must be set anew for each forward pass.

        Args:
            owner: Whose changes they are, such as a module that is set to the size of each input.

        Returns:
            The same manager each time for the same owner, with its earlier changes taken back.
        """
        within = self._within.get(owner)
        if within is None:
            within = self._within[owner] = self.enter(HookManager(self.model))
        within.undo()
        return within

    def find(self, which: str | nn.Module) -> tuple[str, nn.Module]:
        """Return the dotted path and the module that `which` (a path or a module of the model) means.

        Raises:
            LayerError: No such layer; the message names the nearest ones.
        """
        if isinstance(which, nn.Module):
            for name, module in named_modules(self.model).items():
                if module is which:
                    return name, module
            raise LayerError(
                f"this {type(which).__name__} is not part of the {type(self.model).__name__} that was wrapped; "
                "give a module of that model, or its dotted name"
            )
        modules = named_modules(self.model)
        if which in modules:
            return which, modules[which]
        near = difflib.get_close_matches(which, [name for name in modules if name], n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else "none is near"
        raise LayerError(
            f"no layer named '{which}' in {type(self.model).__name__} ({hint}); ex.inspect() lists the layers"
        )

    def match(self, pattern: str) -> dict[str, nn.Module]:
        """Return every module whose dotted path fits a shell pattern such as ``blocks.*.attn``.

        Raises:
            LayerError: Nothing fits.
        """
        found = {n: m for n, m in named_modules(self.model).items() if n and fnmatch.fnmatchcase(n, pattern)}
        if not found:
            raise LayerError(
                f"no layer of {type(self.model).__name__} fits the pattern '{pattern}'; ex.inspect() lists the layers"
            )
        return found

    def tap(
        self,
        which: str | nn.Module,
        *,
        of: Literal["output", "input"] = "output",
        select: int | str | None = None,
        differentiable: bool = False,
    ) -> Tap:
        """Record what a module gives, or receives, at each of its calls.

        Args:
            which: Dotted path or module.
            of: Record the module's output, or its first input.
            select: Which part to record where the output is a tuple, list or mapping.
            differentiable: Make the recorded tensor the place that gradients are taken at. Nothing
                before it records a graph.

        Raises:
            LayerError: No such layer.
        """
        name, module = self.find(which)
        tap = Tap(name, of, select, differentiable)
        record, thread = tap._record, threading.get_ident()  # pyright: ignore[reportPrivateUsage]

        # A copy of the model carries the hooks along, and another thread may run the model meanwhile; what they do is
        # not what was asked for.
        def is_asked(caller: nn.Module) -> bool:
            return caller is module and threading.get_ident() == thread

        def after(caller: nn.Module, _args: Any, output: Any) -> Any:
            return record(output) if is_asked(caller) else output

        def before(caller: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not is_asked(caller):
                return args, kwargs
            if args:
                return (record(args[0]), *args[1:]), kwargs
            if not kwargs:
                raise LayerError(f"layer '{name}' was called without any input; tap its output instead")
            key = next(iter(kwargs))
            return args, {**kwargs, key: record(kwargs[key])}

        if of == "output":
            self._changes.callback(module.register_forward_hook(after).remove)
        else:
            self._changes.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        return tap

    def taps(self, pattern: str, **options: Any) -> dict[str, Tap]:
        """Tap every module that fits a pattern; options as in :meth:`tap`."""
        return {name: self.tap(module, **options) for name, module in self.match(pattern).items()}

    def on_call(
        self,
        module: nn.Module,
        before: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None],
        after: Callable[[nn.Module, Any, Any], None],
    ) -> None:
        """Tell two functions of each start and end of a module's forward, without changing anything."""
        self._changes.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        self._changes.callback(module.register_forward_hook(after).remove)

    def replace_forward(self, which: str | nn.Module, forward: Callable[..., Any]) -> None:
        """Run ``forward(original, *args, **kwargs)`` in place of a module's own forward.

        Args:
            which: Dotted path or module.
            forward: Receives the module's own forward first, so that it can still be called.

        Raises:
            LayerError: No such layer.
        """
        _, module = self.find(which)
        original = module.forward

        def replaced(*args: Any, **kwargs: Any) -> Any:
            return forward(original, *args, **kwargs)

        self.set(module, "forward", replaced)

    def replace_parameter(self, module: nn.Module, name: str, tensor: Tensor) -> None:
        """Let a module use another tensor in place of one of its parameters, which is left untouched.

        Raises:
            LayerError: The module has no such parameter.
        """
        names = [own for own, _ in module.named_parameters(recurse=False)]
        if name not in names:
            raise LayerError(
                f"this {type(module).__name__} has no parameter named '{name}' of its own "
                f"(it has: {', '.join(names) or 'none'})"
            )
        self.set(module, name, nn.Parameter(tensor, requires_grad=False))

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute (a flag, a mode, ``requires_grad``) until everything is undone.

        Args:
            owner: Whose attribute it is: a module, a parameter, or any other object or class.
            name: An attribute, or a parameter, buffer or child of a module. It need not exist.
            value: Its value until then.
        """
        self._changes.callback(putting_back(owner, name))
        setattr(owner, name, value)

    def freeze(self, parameters: Iterable[nn.Parameter]) -> None:
        """Let no parameter ask for a gradient until everything is undone."""
        asking = [parameter for parameter in parameters if parameter.requires_grad]
        # All at once, because a model has hundreds.
        self._changes.callback(_ask_for_gradients, asking, True)
        _ask_for_gradients(asking, False)

    def keep(self, contents: dict[Any, Any]) -> None:
        """Give a mapping the contents it has now, whatever the model writes into it, once everything is undone."""
        self._changes.callback(refill, contents, dict(contents))

    def enter(self, context: AbstractContextManager[Entered]) -> Entered:
        """Enter any context manager; it is left when everything is undone."""
        return self._changes.enter_context(context)


def _ask_for_gradients(parameters: Iterable[nn.Parameter], ask: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad = ask
