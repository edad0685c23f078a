"""What multiplies q·k in a model that runs: measured between its projections and its softmax.

Weights do not matter to the scale, so none is used. Each product with a weight gives numbers ±1 in
its place: what a projection gives then has root mean square 1 exactly, in every head, and a model
of any width takes no memory. Of each softmax the products of activations are found that its
argument depends on, by differentiation: the derivative is what multiplies q·k after the product,
and the lengths of q and k tell what multiplied them before it.
"""

import math
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.interception import MULTI_HEAD, MULTI_HEAD_FROM_INSIDE, Mode, Watching

BIG = 100_000
"""Weights with more numbers are one number, read many times."""
HIDDEN = -1e4
LARGE = 1e6
"""What is added to q·k where a cap is looked for."""
PRODUCTS = {
    *(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm),
    *(torch.einsum, torch.baddbmm, Tensor.baddbmm, torch.functional.einsum),
}
PROJECTIONS = {torch.addmm, torch.mm, Tensor.mm, *PRODUCTS}
CONVOLUTIONS = {functional.conv1d, functional.conv2d, functional.conv3d}
CONVOLUTIONS |= {torch.conv1d, torch.conv2d, torch.conv3d}
SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax, torch.logsumexp, Tensor.logsumexp}
SIGMOID = {torch.sigmoid, Tensor.sigmoid, functional.sigmoid}
TOLD = re.compile(
    "query_pre_attn|attention_multiplier|attn_scale|floor_scale|softcap|logit_cap|sliding_window|"
    "log_scaling|temperature_tuning|key_multiplier|mscale|q_scale|query_scale|chunk_size$"
)
"""In the names of settings that a row of the census repeats."""
NOTHING = type("Nothing", (), {})()
FACTORIES = {torch.empty, torch.randn, torch.rand, torch.zeros, torch.ones}

SIGNS = torch.randint(0, 2, (1 << 22,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
"""A projection gives some of these, one after the other, from a place of its own."""

Found = dict[str, Any]


class Weightless(Mode):
    """While a model is made: big weights take no memory, and nothing is written into them."""

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return one number as a big tensor; do nothing in place on a big weight."""
        name = getattr(func, "__name__", "")
        if func in FACTORIES:
            sizes = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else args)
            least = BIG if func in (torch.empty, torch.randn, torch.rand) else 100 * BIG
            if all(isinstance(size, int) for size in sizes) and math.prod(sizes) > least:
                return torch.zeros((), dtype=kwargs.get("dtype")).expand(*sizes)
        written: Any = kwargs.get("tensor", args[0] if args else None)
        in_place = (name.endswith("_") and name[0] != "_") or name == "__setitem__"
        if (
            in_place
            and isinstance(written, Tensor)
            and written.numel() > BIG
            and not any(written.stride())
        ):
            return written
        return func(*args, **kwargs)


class Watched(Watching):
    """A mode that finds what multiplies q·k in each softmax of a model.

    Projections give signs, or with `other` signs whose size grows over the features, and then a
    large number is added to each q·k: that shows norms and caps.
    """

    def __init__(self, model: nn.Module, other: bool = False) -> None:
        super().__init__(model)
        self.other = other
        self.generator = torch.Generator().manual_seed(0)
        self.weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.parameters = dict(model.named_parameters())
        self.products: list[tuple[Tensor, Found]] = []
        self.sigmoids: list[Tensor] = []
        self.last: tuple[Found, Tensor] | None = None  # the last softmax, waiting for its values
        self.found: dict[tuple[str, int], Found] = {}

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what stands for the function's result."""
        if func is MULTI_HEAD:
            with self:
                return MULTI_HEAD_FROM_INSIDE(*args, **kwargs)
        if func is functional.linear:
            return self.projected(args[0], (*args[0].shape[:-1], args[1].shape[0]))
        if func in CONVOLUTIONS:
            bare = [one.to("meta") if isinstance(one, Tensor) else one for one in args]
            named = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in kwargs.items()}
            return self.projected(args[0], func(*bare, **named).shape)
        if func is functional.embedding and args[1].numel() > BIG and args[1].requires_grad:
            return self.projected(None, (*args[0].shape, args[1].shape[1]))
        if "grouped_mm" in getattr(func, "__name__", ""):
            return self.projected(None, (*args[0].shape[:-1], args[1].shape[-1]))
        if func in PROJECTIONS and any(map(self.is_weight, args)):
            bare = [one.to("meta") if isinstance(one, Tensor) else one for one in args]
            return self.projected(None, func(*bare, **kwargs).shape)
        if func is functional.scaled_dot_product_attention:
            return self.attended(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in PRODUCTS:
            return self.product(func, args, kwargs, result)
        if func in SOFTMAX and result.is_floating_point():
            return self.softmax(kwargs.get("input", args[0] if args else None), result)
        if func in SIGMOID:
            self.sigmoids = [*self.sigmoids[-3:], torch.zeros_like(result, requires_grad=True)]
            return result + self.sigmoids[-1]
        return result

    def is_weight(self, one: Any) -> bool:
        """Return whether a tensor is a view of a weight."""
        return isinstance(one, Tensor) and (
            one.device.type == "cpu" and one.untyped_storage().data_ptr() in self.weights
        )

    def projected(self, given: Tensor | None, shape: Any) -> Tensor:
        """Return ±1 in the place of what a projection gives; see whether a gate came before."""
        if given is not None and self.last and "v" in self.last[0]:
            on_values, *on_gates = depends(given, [self.last[1], *self.sigmoids])
            if on_values is not None:
                self.last[0]["gate"] = any(one is not None for one in on_gates)
                self.last = None
        shape, size = tuple(shape), math.prod(shape)
        if size > len(SIGNS) // 2:
            signs = torch.randint(0, 2, shape, generator=self.generator) * 2.0 - 1.0
        else:
            first = int(torch.randint(0, len(SIGNS) - size, (), generator=self.generator))
            signs = SIGNS[first : first + size].clone().reshape(shape)
        return signs * torch.linspace(2.0, 4.0, shape[-1]) if self.other else signs

    def product(self, func: Any, args: Any, kwargs: dict[str, Any], result: Tensor) -> Tensor:
        """Note a product of activations: of q and k, or of weights and values."""
        what, weights = self.last or ({"v": 0}, result)
        if "v" not in what and depends(result, [weights])[0] is not None:
            what["v"] = result.shape[-1]
            added = torch.zeros_like(result, requires_grad=True)
            self.last = what, added
            return result + added
        given = (*args, *kwargs.values())
        flat = [one for part in given for one in (part if isinstance(part, list) else [part])]
        q, k = [one for one in flat if isinstance(one, Tensor)][-2:]
        text = args[0] if isinstance(args[0], str) else ""
        if text and "->" in text and "..." not in text:
            left, right, out = text.replace("->", ",").replace(" ", "").split(",")
            sizes = dict(zip(left, q.shape, strict=True))
            d = math.prod(sizes[one] for one in left if one in right and one not in out)
        else:
            d = q.shape[-1]
        what = {
            "d": d,
            "q": square(q) ** 0.5,
            "k": square(k, -1 if text else -2) ** 0.5,
            "m": result.shape[-1],
        }
        what["alpha"] = kwargs.get("alpha", 1.0)
        if not text and q.dim() >= 3:
            what["rows"] = q.detach().double().square().mean(-1).sqrt()
            what["columns"] = k.detach().double().square().mean(-2).sqrt()
        added = torch.full_like(result, LARGE * self.other).requires_grad_()
        self.products = [*self.products[-11:], (added, what)]
        return result + added

    def softmax(self, logits: Any, result: Tensor) -> Tensor:
        """Find the products that the logits depend on, and measure what came between."""
        slopes = depends(logits, [added for added, _ in self.products])
        used = [
            (slope, what)
            for slope, (_, what) in zip(slopes, self.products, strict=True)
            if slope is not None and (self.other or slope.abs().max() > 0)
        ]
        if not used or not self.running or logits.shape[-1] < 2:
            return result
        self.products = []
        of_bias = depends(logits, self.sigmoids)
        self.sigmoids = [
            one for one, slope in zip(self.sigmoids, of_bias, strict=True) if slope is None
        ]
        self.note(logits, [(middle(slope), slope, what) for slope, what in used])
        added = torch.zeros_like(result, requires_grad=True)
        self.last = self.last[0], added  # type: ignore[index]
        return result + added

    def attended(self, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Any:
        """Note a call of PyTorch's own attention."""
        what = {"d": query.shape[-1], "q": square(query) ** 0.5, "k": square(key) ** 0.5}
        what |= {"m": key.shape[-2], "alpha": 1.0}
        what["rows"] = query.detach().double().square().mean(-1).sqrt()
        what["columns"] = key.detach().double().square().mean(-1).sqrt()
        scale = named.get("scale") or query.shape[-1] ** -0.5
        logits = torch.zeros(*query.shape[:-1], key.shape[-2])
        self.note(logits, [(scale, torch.full_like(logits, scale), what)])
        output = torch.zeros(*query.shape[:-1], value.shape[-1], requires_grad=True)
        self.last[0]["v"] = value.shape[-1]  # type: ignore[index]
        self.last = self.last[0], output  # type: ignore[index]
        return output * 1.0

    def note(self, logits: Tensor, terms: list[tuple[float, Tensor, Found]]) -> None:
        """Add what was found to the call of the module that runs."""
        module = next(one for one in reversed(self.running) if not is_of_torch(one))
        name, number = self.count_call(module)
        alphas = [
            abs(factor) * one["alpha"] * one["q"] * one["k"] * one["d"] ** 0.5
            for factor, _, one in terms
        ]
        alpha, factor, slope, term = max(
            ((alpha, *one) for alpha, one in zip(alphas, terms, strict=True)),
            key=lambda one: one[0],
        )
        seen = logits.detach() > HIDDEN
        names = [
            name
            for name, slope in zip(
                self.parameters, depends(logits, list(self.parameters.values())), strict=True
            )
            if slope is not None
        ]
        found = {
            "kind": type(module).__name__,
            "where": where(
                str(sys.modules[type(module).__module__].__file__), type(module).__name__
            ),
            "d": term["d"],
            "alpha": math.hypot(*alphas),
            "scale": alpha / term["d"] ** 0.5,
            "terms": len(terms),
            "q": term["q"],
            "k": term["k"],
            "factor": factor,
            "largest": float(logits.detach().max()),
            "visible": int(seen.sum(-1).max()),
            "keys": logits.shape[-1],
            "sink": 0 < logits.shape[-1] - term["m"] <= 2 and logits.dim() > 2,
            "parameters": sorted({".".join(one.split(".")[-2:]) for one in names}),
            "read": {
                one: value
                for one, value in vars(getattr(module, "config", None) or NOTHING).items()
                if TOLD.search(one) and isinstance(value, int | float)
            },
            "rows": by_row(slope, term),
            "heads": by_head(term),
        }
        self.found[name, number] = found
        self.last = found, logits


def by_row(slope: Tensor, term: Found) -> list[float] | None:
    """Return what multiplies q·k in each row, for the first head, k being as long as its first."""
    rows: Any = term.get("rows")
    columns: Any = term.get("columns")
    if rows is None or rows.dim() < 2 or slope.shape[-2] != rows.shape[-1]:
        return None
    first = (0,) * (rows.dim() - 1)
    factors = [middle(one) for one in slope.flatten(0, -3)[0]] if slope.dim() > 2 else [1.0]
    return [
        float(one) for one in rows[first] * torch.tensor(factors) * columns[(0,) * columns.dim()]
    ]


def by_head(term: Found) -> list[float] | None:
    """Return the largest over the smallest root mean square of q and of k over the heads."""
    if "rows" not in term or term["rows"].dim() < 3:
        return None
    sizes = [term[one].square().mean(-1).sqrt().flatten() for one in ("rows", "columns")]
    return [float(one.max() / one.min().clamp(min=1e-12)) for one in sizes]


def depends(result: Tensor, on: list[Tensor]) -> list[Tensor | None]:
    """Return the derivatives of the sum of a tensor by those that it depends on, else None."""
    if not on or not result.requires_grad:
        return [None] * len(on)
    wanted = [i for i, one in enumerate(on) if one.requires_grad]
    total = result.double().where(result > HIDDEN, 0.0).sum() if result.numel() else result.sum()
    slopes = torch.autograd.grad(
        total, [on[i] for i in wanted], allow_unused=True, retain_graph=True
    )
    found: list[Tensor | None] = [None] * len(on)
    for i, slope in zip(wanted, slopes, strict=True):
        found[i] = slope
    return found


def square(x: Tensor, along: int = -1) -> float:
    """Return the mean square of the vectors along an axis that are not 0: those are padding."""
    x = x.detach().double()
    there = (x != 0).any(along, keepdim=True).expand_as(x)
    return float(x.square().sum() / there.sum().clamp(min=1))


def middle(slope: Tensor) -> float:
    """Return the middle of the slopes that are not 0, as they are where a key is hidden."""
    return float(slope[slope != 0].double().abs().median()) if (slope != 0).any() else 0.0


def is_of_torch(module: nn.Module) -> bool:
    """Return whether a module's class is one of PyTorch's."""
    return type(module).__module__.startswith("torch.")


@cache
def where(path: str, name: str) -> str:
    """Return the folder and file of a class, and its line."""
    text = Path(path).read_text("utf-8")
    line = text[: text.index(f"\nclass {name}") + 1].count("\n") + 1
    return f"{Path(path).parent.name}/{Path(path).name}:{line}"


def run(model: nn.Module, call: Callable[[], object], other: bool = False) -> dict[Any, Found]:
    """Return what is found of each softmax in one run."""
    watched = Watched(model, other)
    with watched.at_work(), torch.enable_grad():
        call()
    return watched.found
