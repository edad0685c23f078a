"""Measure the factor on q·k in a running model, between its projections and its softmax.

Weights do not matter to the scale, so none is used. Each product with a weight is replaced by
numbers ±1: a projection's output then has root mean square 1 exactly, in every head, and a model of
any width takes no memory. For each softmax the products of activations on which its argument
depends are found by differentiation. The derivative is the factor on q·k after the product, and the
lengths of q and k give the factor before it.
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.models.attention_call import HIDDEN, MULTI_HEAD, TRANSPARENT_MULTI_HEAD
from attnlib.models.interception import Mode, ModuleTracker
from attnlib.models.softmax_recorder import summed_size

BIG = 100_000
"""Weights with more numbers are one number, read many times."""
LARGE = 1e6
"""What is added to q·k where a cap is looked for."""
PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum", "baddbmm"}
PROJECTIONS = {"addmm", "mm", *PRODUCTS}
"""Where one of the factors is a weight."""
CONVOLUTIONS = {"conv1d", "conv2d", "conv3d"}
UNSET = {torch.empty, torch.randn, torch.rand}
FACTORIES = {*UNSET, torch.zeros, torch.ones}

SIGNS = torch.randint(0, 2, (1 << 22,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
"""A projection gives some of these, one after the other, from a place of its own."""

Row = dict[str, Any]


class Weightless(Mode):
    """A mode in which a model is made whose big weights take no memory, and are not written."""

    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return one number as a big tensor; leave big weights as they are."""
        name = getattr(func, "__name__", "")
        if func in FACTORIES:
            sizes = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else args)
            if math.prod(sizes) > (BIG if func in UNSET else 100 * BIG):
                return torch.zeros((), dtype=kwargs.get("dtype")).expand(*sizes)
        written: Any = kwargs.get("tensor", args[0] if args else None)
        in_place = (name.endswith("_") and name[0] != "_") or name == "__setitem__"
        is_big = isinstance(written, Tensor) and written.numel() > BIG
        if in_place and is_big and not any(written.stride()):
            return written
        return func(*args, **kwargs)


class Product(NamedTuple):
    """A product of activations that may be q·k."""

    added: Tensor
    """Zeros that were added to it, by which the softmax's argument is differentiated."""
    q: Tensor
    k: Tensor
    """(…, places, d)."""
    d: int
    factor: float
    """What multiplies q·k in the product itself."""
    in_order: bool
    """Whether q and k have axes for heads and for places, in this order."""

    def alpha(self, slope: Tensor) -> float:
        """Return the standard deviation of its part of the logits."""
        lengths = rms(self.q) * rms(self.k)
        return float(median_slope(slope) * self.factor * lengths * self.d**0.5)

    def row_factors(self, slope: Tensor) -> list[float] | None:
        """Return the factor on q·k in each row of the first head, as if keys had one length."""
        if not self.in_order:
            return None
        factors = [median_slope(row) for row in slope.flatten(0, -3)[0]]
        lengths = self.q.flatten(0, -3)[0].double().square().mean(-1).sqrt() * rms(self.k)
        return [factor * float(length) for factor, length in zip(factors, lengths, strict=True)]

    def head_spread(self) -> list[float] | None:
        """Return for q and k the largest root mean square of a head over the smallest."""
        if not self.in_order:
            return None
        sizes = [x.double().square().mean((-2, -1)).sqrt() for x in (self.q, self.k)]
        return [float(size.max() / size.min().clamp(min=1e-12)) for size in sizes]


class WithoutWeights(Mode):
    """A mode in which `projected` replaces the product with a weight."""

    weights: set[int]
    """Where the numbers of the weights are."""

    def replace_product(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the replacement of a product with a weight; None for all else."""
        name = getattr(func, "__name__", "")
        if "grouped_mm" in name:
            return self.projected(args[0], (*args[0].shape[:-1], args[1].shape[-1]), args[1])
        if func is functional.linear:
            return self.projected(args[0], (*args[0].shape[:-1], args[1].shape[0]), args[1])
        if func is functional.embedding and args[1].numel() > BIG and args[1].requires_grad:
            return self.projected(args[0], (*args[0].shape, args[1].shape[1]), args[1])
        if name in CONVOLUTIONS or (name in PROJECTIONS and any(map(self.is_weight, args))):
            tensors = [value for value in args if isinstance(value, Tensor)]
            given = next((value for value in tensors if not self.is_weight(value)), None)
            weight = next((value for value in tensors if self.is_weight(value)), None)
            named = {key: on_meta(value) for key, value in kwargs.items()}
            return self.projected(given, func(*map(on_meta, args), **named).shape, weight)
        return None

    def is_weight(self, value: Any) -> bool:
        """Return whether a tensor is a view of a weight."""
        return isinstance(value, Tensor) and (
            value.device.type == "cpu" and value.untyped_storage().data_ptr() in self.weights
        )

    def projected(self, given: Tensor | None, shape: Any, weight: Any) -> Tensor:
        """Return the replacement of the product of `given` and a weight."""
        raise NotImplementedError


class Watched(ModuleTracker, WithoutWeights):
    """A mode that measures the factor on q·k in each softmax of a model.

    Projections give signs. With `other` the signs grow in size over the features, and a large
    number is added to each q·k: that shows norms and caps.
    """

    def __init__(self, model: nn.Module, other: bool = False) -> None:
        super().__init__(model)
        self.other = other
        self.generator = torch.Generator().manual_seed(0)
        self.parameters = dict(model.named_parameters())
        self.weights = {weight.untyped_storage().data_ptr() for weight in self.parameters.values()}
        self.products: list[Product] = []
        self.sigmoids: list[Tensor] = []
        self.last: tuple[Row, Tensor] | None = None  # the last softmax, waiting for its values
        self.found: dict[tuple[str, int], Row] = {}

    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the function's result, or its replacement."""
        name = getattr(func, "__name__", "")
        if func is MULTI_HEAD:
            with self:
                return TRANSPARENT_MULTI_HEAD(*args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            with self:
                return plain_attention(*args, **kwargs)
        stand_in = self.replace_product(func, args, kwargs)
        if stand_in is not None:
            return stand_in
        result = func(*args, **kwargs)
        if name in PRODUCTS:
            return self.product(name, args, kwargs, result)
        if name in ("softmax", "logsumexp") and result.is_floating_point():
            return self.softmax(kwargs.get("input", args[0] if args else None), result)
        if name == "sigmoid":
            self.sigmoids = [*self.sigmoids[-3:], zeros_for_gradient(result)]
            return result + self.sigmoids[-1]
        return result

    def projected(self, given: Tensor | None, shape: Any, _: Any = None) -> Tensor:
        """Return ±1 in place of a projection's output; note whether a gate came before."""
        if given is not None and self.last and "v" in self.last[0]:
            on_values, *on_gates = derivatives_by(given, [self.last[1], *self.sigmoids])
            if on_values is not None:
                self.last[0]["gate"] = any(slope is not None for slope in on_gates)
                self.last = None
        size = math.prod(shape)
        if size > len(SIGNS) // 2:
            signs = torch.randint(0, 2, shape, generator=self.generator) * 2.0 - 1.0
        else:
            first = int(torch.randint(0, len(SIGNS) - size, (), generator=self.generator))
            signs = SIGNS[first : first + size].clone().reshape(shape)
        return signs * torch.linspace(2.0, 4.0, shape[-1]) if self.other else signs

    def product(self, name: str, args: Any, kwargs: dict[str, Any], result: Tensor) -> Tensor:
        """Note a product of activations: of q and k, or of weights and values."""
        if self.last and "v" not in self.last[0]:
            row, weights = self.last
            if derivatives_by(result, [weights])[0] is not None:
                row["v"] = result.shape[-1]
                self.last = row, zeros_for_gradient(result)
                return result + self.last[1]
        inputs = (*args, *kwargs.values())
        flat = [value for part in inputs for value in (part if isinstance(part, list) else [part])]
        q, k = [value.detach() for value in flat if isinstance(value, Tensor)][-2:]
        of_letters = name == "einsum"
        d = summed_size(name, args, [q, k]) or q.shape[-1]
        added = torch.full_like(result, LARGE * self.other).requires_grad_()
        factor, in_order = kwargs.get("alpha", 1.0), not of_letters and q.dim() > 2
        noted = Product(added, q, k if of_letters else k.mT, d, factor, in_order)
        self.products = [*self.products[-11:], noted]
        return result + added

    def softmax(self, logits: Any, result: Tensor) -> Tensor:
        """Find the products on which the logits depend, and measure the factor on each."""
        slopes = derivatives_by(logits, [product.added for product in self.products])
        used = [
            (product, slope)
            for product, slope in zip(self.products, slopes, strict=True)
            if slope is not None and (self.other or slope.abs().max() > 0)
        ]
        if not used or not self.running or logits.shape[-1] < 2:
            return result
        self.products = []
        of_bias = derivatives_by(logits, self.sigmoids)
        self.sigmoids = [
            sigmoid for sigmoid, slope in zip(self.sigmoids, of_bias, strict=True) if slope is None
        ]
        module = self.owner()
        kind: Any = type(module)
        row = measure_logits(logits, used) | {
            "kind": kind.__name__,
            "where": place_of(kind),
            "parameters": self.parameters_of(logits),
        }
        self.found[self.count_call(module)] = row
        self.last = row, zeros_for_gradient(result)
        return result + self.last[1]

    def parameters_of(self, logits: Tensor) -> list[str]:
        """Return the last two parts of the names of the parameters on which the logits depend."""
        slopes = derivatives_by(logits, list(self.parameters.values()))
        names = (name for name, s in zip(self.parameters, slopes, strict=True) if s is not None)
        return sorted({".".join(name.split(".")[-2:]) for name in names})


def measure_logits(logits: Tensor, terms: list[tuple[Product, Tensor]]) -> Row:
    """Return a row from the products in the logits, and the derivatives of the logits by them."""
    alphas = [product.alpha(slope) for product, slope in terms]
    largest = max(range(len(terms)), key=alphas.__getitem__)
    product, slope = terms[largest]
    keys = product.added.shape[-1]
    return {
        "d": product.d,
        "alpha": math.hypot(*alphas),
        "scale": alphas[largest] / product.d**0.5,
        "terms": len(terms),
        "lengths": [rms(product.q), rms(product.k)],
        "factor": median_slope(slope),
        "largest": float(logits.detach().max()),
        "visible": int((logits.detach() > HIDDEN).sum(-1).max()),
        "sink": 0 < logits.shape[-1] - keys <= 2 and logits.dim() > 2,
        "rows": product.row_factors(slope),
        "heads": product.head_spread(),
    }


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, *_: Any, scale: float | None = None, **__: Any
) -> Tensor:
    """Return PyTorch's own attention as two products and a softmax, without its mask."""
    if query.dim() > 3:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    scores = query * (scale or query.shape[-1] ** -0.5) @ key.mT
    return scores.softmax(-1) @ value


def on_meta(argument: Any) -> Any:
    """Return a tensor without its numbers, and all else as it is."""
    return argument.to("meta") if isinstance(argument, Tensor) else argument


def zeros_for_gradient(result: Tensor) -> Tensor:
    """Return zeros to add to a result, by which whatever depends on it can be differentiated."""
    return torch.zeros_like(result, requires_grad=True)


def derivatives_by(result: Tensor, on: list[Tensor]) -> list[Tensor | None]:
    """Return the derivatives of a tensor's sum by others, None for those without influence."""
    derivatives: list[Tensor | None] = [None] * len(on)
    differentiable = [i for i, tensor in enumerate(on) if tensor.requires_grad]
    if not differentiable or not result.requires_grad:
        return derivatives
    total = result.double().where(result > HIDDEN, 0.0).sum()
    slopes = torch.autograd.grad(
        total, [on[i] for i in differentiable], allow_unused=True, retain_graph=True
    )
    for i, slope in zip(differentiable, slopes, strict=True):
        derivatives[i] = slope
    return derivatives


def rms(x: Tensor) -> float:
    """Return the root mean square of the vectors that are not 0, which is padding."""
    x = x.double()
    nonzero = (x != 0).any(-1, keepdim=True).expand_as(x)
    return math.sqrt(x.square().sum() / nonzero.sum().clamp(min=1))


def median_slope(slope: Tensor) -> float:
    """Return the median size of the slopes that are not 0, as they are for hidden keys."""
    return float(slope[slope != 0].double().abs().median()) if (slope != 0).any() else 0.0


@cache
def place_of(kind: Any) -> str:
    """Return the folder and file of a class, and its line."""
    path = Path(str(sys.modules[kind.__module__].__file__))
    text = path.read_text("utf-8")
    line = text[: text.index(f"\nclass {kind.__name__}") + 1].count("\n") + 1
    return f"{path.parent.name}/{path.name}:{line}"


def measure(model: nn.Module, call: Callable[[], object], other: bool = False) -> dict[Any, Row]:
    """Run a model, and return a row for each softmax."""
    watched = Watched(model, other)
    with watched.at_work(), torch.enable_grad():
        call()
    return watched.found
