"""Generated input: what comes out is right, or an error that names an argument; never NaN.

What is right is computed here in float64, with the error that rounding may make of it. A usual run
tries a few hundred inputs of a function, a slow one ten thousand.
"""

import math
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from attnlib import exact
from attnlib.attention import Attention, attend, rescale
from attnlib.policies import POLICIES
from attnlib.probing import DEFINITIONS, probe
from attnlib.probing.random_scores import RandomScores
from attnlib.scores import Cosine, DotProduct

HOW_MANY = pytest.mark.parametrize("many", [200, pytest.param(10_000, marks=pytest.mark.slow)])


def try_all(many, strategy, check):
    """Run the check on so many inputs of the strategy."""
    settings(max_examples=many, report_multiple_bugs=False)(given(strategy)(check))()


def outcome(function, *arguments, **named):
    """Return the result and what is said where the input is refused, which is one line."""
    try:
        return function(*arguments, **named), ""
    except (ValueError, TypeError) as error:
        return None, str(error).replace("\n", "more than a line")


def names(argument, refusal):
    return re.search(rf"\b{argument}\b", refusal) and "more than a line" not in refusal


# --- attention: what to try ----------------------------------------------------------------------

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def wide(dtype):
    return torch.promote_types(dtype, torch.float32)


@dataclass
class Case:
    """A call of `attend`: tensors, and what it is told."""

    q: Tensor
    k: Tensor
    v: Tensor
    told: dict[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)  # arguments out of their range

    @property
    def rows(self):
        heads = self.q.shape[:-2]
        return (*torch.broadcast_shapes(heads, self.expanded(self.k).shape[:-2]), self.q.shape[-2])

    def expanded(self, tensor):
        """Return keys or values in float64, those of shared heads repeated."""
        tensor = tensor.double()
        if self.told.get("enable_gqa"):
            return tensor.repeat_interleave(self.q.shape[-3] // tensor.shape[-3], dim=-3)
        return tensor


def tensor(draw, shape, dtype, least, most, transposed=True):
    """Return a tensor whose numbers are of the size 10^e, for one e from least to most."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["normal", "normal", "ones", "signs", "zeros", "few"]))
    numbers = rng.standard_normal(shape)
    if kind == "ones":
        numbers = np.ones(shape)
    elif kind == "signs":
        numbers = np.sign(numbers)
    elif kind == "zeros":
        numbers = np.zeros(shape)
    elif kind == "few":  # rows of zeros among others, and equal keys
        numbers *= rng.integers(0, 2, (*shape[:-1], 1))
    numbers *= 10.0 ** draw(st.floats(least, most))
    largest = torch.finfo(dtype).max
    made = torch.from_numpy(numbers.clip(-largest, largest)).to(dtype)
    return made.mT.contiguous().mT if transposed and draw(st.booleans()) else made


def number(draw, limit):
    """Return a number that is used as a scale, and whether it is in the range."""
    value = draw(
        st.sampled_from([0.0, 1.0, 5e-324, limit, 1.001 * limit, math.inf, math.nan, -1.0])
        | st.floats(-6.0, 6.0).map(lambda e: 10.0**e)
        | st.floats(-300.0, 300.0).map(lambda e: 10.0**e)
    )
    return value, 0.0 <= value <= limit


def factor(draw, rows, dtype):
    """Return one for each query, for some or for all, and whether it is in the range."""
    limit = math.sqrt(torch.finfo(wide(dtype)).max)
    if draw(st.booleans()):
        return number(draw, limit)
    shape = tuple(1 if draw(st.booleans()) else size for size in rows)
    shape = shape[draw(st.integers(0, len(shape))) :]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = math.log10(limit)
    low = draw(st.floats(-6.0, 4.0) | st.floats(-30.0, most))
    numbers = 10.0 ** np.minimum(low + rng.uniform(0.0, draw(st.floats(0.0, 4.0)), shape), most)
    numbers = np.minimum(numbers, 0.999 * limit)
    kind = draw(st.sampled_from(["array", "tensor", "tensor of its own type"]))
    if kind == "array":
        return numbers, True
    dtype = torch.float64 if kind == "tensor" else wide(dtype)
    return torch.from_numpy(np.asarray(numbers)).to(dtype), True


@st.composite
def cases(draw):
    dtype = draw(st.sampled_from(DTYPES))
    heads = draw(st.sampled_from([(), (1,), (2,), (3, 2)]))
    enable_gqa = bool(heads) and draw(st.booleans())
    shared = (*heads[:-1], 1) if enable_gqa else heads
    if not enable_gqa and draw(st.integers(0, 3)) == 0:
        shared = tuple(1 if draw(st.booleans()) else size for size in heads)
    queries, keys, size, values = (draw(st.integers(least, 6)) for least in (0, 0, 1, 1))
    values = size if draw(st.booleans()) else values  # as the fused kernel wants it
    cosine = draw(st.integers(0, 2)) == 0
    most = {torch.float16: 4.5, torch.float64: 70.0}.get(dtype, 8.0)
    case = Case(
        tensor(draw, (*heads, queries, size), dtype, -most, most),
        tensor(draw, (*shared, keys, size), dtype, -most, most),
        tensor(draw, (*shared, keys, values), dtype, -4.0, most - 1.0),
    )
    told = case.told
    if enable_gqa:
        told["enable_gqa"] = True
    if cosine:
        told["normalize_qk"] = True
    kind = draw(st.sampled_from(["none", "policy", "alpha", "scale", "scale"]))
    if cosine and kind in ("none", "alpha"):
        kind = "scale"
    if kind == "policy":
        wanted = "cosine" if cosine else "dot product"
        names = [name for name, one in POLICIES.items() if one.applied_to == wanted]
        told["policy"] = draw(st.sampled_from(names))
        if told["policy"] == "gradient_cosine" and size < 3:
            case.refused.append("d")
    elif kind != "none":
        told[kind], fine = factor(draw, case.rows, dtype)
        case.refused += [] if fine else [kind]
    post = draw(st.sampled_from(["none", "none", "factor", "exact"]))
    if post == "factor":
        told["post_scale"], fine = factor(draw, case.rows, dtype)
        case.refused += [] if fine else ["post_scale"]
    elif post == "exact" and isinstance(scale_given(told), float):
        told["post_scale"] = "exact"
    mask = draw(st.sampled_from(["none", "causal", "truth", "numbers", "infinite", "lowest"]))
    full = (*case.rows, keys)
    if mask == "causal":
        told["is_causal"] = True
    elif mask != "none":
        shape = tuple(1 if draw(st.integers(0, 2)) == 0 else size for size in full)
        shape = shape[draw(st.integers(0, len(shape) - 2)) :]
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        seen = torch.from_numpy(rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])))
        own = draw(st.sampled_from([torch.float32, dtype]))
        bias = tensor(draw, shape, own, -4.0, 4.0, transposed=False)
        hiding = {"infinite": -math.inf, "lowest": torch.finfo(own).min}
        told["attn_mask"] = {"truth": seen, "numbers": bias}.get(mask)
        if told["attn_mask"] is None:
            told["attn_mask"] = bias.masked_fill(~seen, hiding[mask])
    return case


# --- attention: what is right --------------------------------------------------------------------


def mask_of(case):
    """Return which keys each query sees, and what is added to the logits, in float64."""
    told, full = case.told, (*case.rows, case.k.shape[-2])
    mask = told.get("attn_mask")
    if told.get("is_causal"):
        return torch.ones(full, dtype=torch.bool).tril(), torch.zeros(full).double()
    if mask is None:
        return torch.ones(full, dtype=torch.bool), torch.zeros(full).double()
    if mask.dtype == torch.bool:
        return mask.expand(full), torch.zeros(full).double()
    seen = mask > torch.finfo(mask.dtype).min
    return seen.expand(full), mask.double().masked_fill(~seen, 0.0).expand(full)


def of_rows(value, case):
    return torch.as_tensor(np.asarray(value), dtype=torch.float64).expand(case.rows)


def scale_of(case, n):
    """Return what multiplies q·k or the cosine, for each query."""
    told, size = case.told, case.q.shape[-1]
    if "policy" in told:
        n = np.maximum(n.numpy(), 1)
        return torch.from_numpy(POLICIES[told["policy"]].scale(n, size)).expand(case.rows)
    if "scale" in told:
        return of_rows(told["scale"], case)
    return of_rows(told.get("alpha", 1.0), case) / math.sqrt(size)


def check_attend(case):
    result, refusal = outcome(attend, case.q, case.k, case.v, **case.told)
    judge(case, result, refusal, case.told)


def judge(case, result, refusal, told):
    """Assert that the outcome is right, or refused by the name of what is wrong."""
    if refusal and not case.refused and isinstance(told.get("post_scale"), str):
        assert names("alpha", refusal) or names("d", refusal)
        assert not exactly_known(case) or not math.prod(case.rows)
    elif refusal:
        assert any(names(one, refusal) for one in case.refused), refusal
    else:
        assert not case.refused
        assert_right(case, result)


def exactly_known(case):
    """Return whether `exact` has the post-scale: σ√d up to 10⁴, cosines σ/√d, from d = 3 on."""
    size = case.q.shape[-1]
    scale = scale_of(case, mask_of(case)[0].sum(-1)).max() if math.prod(case.rows) else 0.0
    if case.told.get("normalize_qk"):
        return size >= 3 and scale <= 1e4 * math.sqrt(size)
    return scale * math.sqrt(size) <= 1e4


def assert_right(case, result):
    """Assert that it is the softmax in float64 but for what rounding does."""
    told, dtype = case.told, case.q.dtype
    q, k, v = case.q.double(), case.expanded(case.k), case.expanded(case.v)
    assert result.dtype == dtype
    assert result.shape == (*case.rows, v.shape[-1])
    assert not result.isnan().any()
    if not result.numel() or not v.numel():
        assert (result == 0).all()
        return
    if told.get("normalize_qk"):
        q, k = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12) for x in (q, k))
    seen, bias = mask_of(case)
    n = seen.sum(-1)
    scale = scale_of(case, n)
    logits = scale.unsqueeze(-1) * (q @ k.mT) + bias
    sizes = scale.unsqueeze(-1) * (q.abs() @ k.abs().mT) + bias.abs()
    weights = torch.softmax(logits.masked_fill(~seen, -math.inf), dim=-1)
    weights = weights.masked_fill(~seen, 0.0)
    expected = weights @ v

    # Rounding: of the numbers that are multiplied, and of the sums.
    epsilon = torch.finfo(wide(dtype)).eps
    single = isinstance(scale_given(told), float | int) or "policy" in told
    if told.get("normalize_qk") or not single:
        epsilon = torch.finfo(dtype).eps
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    smallest = tiny * k.abs().sum(-1).amax(-1, keepdim=True)
    slips = 8.0 * epsilon * (q.shape[-1] + 4) * sizes.amax(-1) + 8.0 * smallest
    everything = seen_after_all(told, seen, sizes.amax(-1))
    span = v.abs().amax(-2, keepdim=True)
    rounding = 4.0 * torch.finfo(dtype).eps * (v.shape[-2] + 2) * span + 16.0 * tiny
    allowed = torch.expm1(2.0 * slips.clamp(max=1.0)).unsqueeze(-1) * span + rounding

    within = torch.where(everything.unsqueeze(-1), torch.ones_like(seen), seen)
    kept, v = within.unsqueeze(-1), v.unsqueeze(-3).expand(*within.shape, -1)
    low = v.masked_fill(~kept, math.inf).amin(-2)
    high = v.masked_fill(~kept, -math.inf).amax(-2)
    low, high = (torch.where(x.isinf(), 0.0, x) for x in (low, high))
    beyond = everything.unsqueeze(-1)  # the sum with a large logit is −∞, and the row zeros
    low, high = (
        torch.where(beyond, low.clamp(max=0), low),
        torch.where(beyond, high.clamp(min=0), high),
    )
    known = ((slips < 0.5) & ~everything).unsqueeze(-1)

    c = factor_of(case, n).unsqueeze(-1)
    allowed = allowed + 8.0 * torch.finfo(dtype).eps * span
    bounds = [
        torch.where(known, torch.maximum(expected - allowed, low - rounding), low - rounding),
        torch.where(known, torch.minimum(expected + allowed, high + rounding), high + rounding),
    ]
    least, most = (c * bound for bound in bounds)
    largest = torch.finfo(dtype).max
    found = result.double().clamp(-largest, largest)  # beyond its type a number is infinite
    assert (found >= least.clamp(-largest, largest) - 16.0 * tiny).all()
    assert (found <= most.clamp(-largest, largest) + 16.0 * tiny).all()


def scale_given(told):
    return told.get("alpha", told.get("scale", 1.0))


def seen_after_all(told, seen, sizes):
    """Return the queries to which a mask's lowest number hides no key: it is all, or too little."""
    mask = told.get("attn_mask")
    if mask is None or mask.dtype == torch.bool:
        return torch.zeros(seen.shape[:-1], dtype=torch.bool)
    lowest = (~seen & (mask > -math.inf)).any(-1)
    return lowest & (~seen.any(-1) | (sizes > 1e-3 * torch.finfo(mask.dtype).max))


def factor_of(case, n):
    told = case.told
    given = told.get("post_scale", 1.0)
    if isinstance(given, str):
        size, cosine = case.q.shape[-1], "normalize_qk" in told
        alpha = scale_of(case, n) * (1.0 if cosine else math.sqrt(size))
        law = Cosine(size) if cosine else DotProduct(size)
        return torch.from_numpy(
            np.asarray(exact.post_scale(law, alpha.numpy(), np.maximum(n.numpy(), 1.0)))
        )
    return of_rows(given, case)


@HOW_MANY
def test_attend(many):
    try_all(many, cases(), check_attend)


# --- the module, the context ----------------------------------------------------------------------


@st.composite
def modules(draw):
    """Return sizes and options of a module, the length of a text, and what of it is refused."""
    heads, head_size = draw(st.integers(0, 4)), draw(st.sampled_from([None, 0, 1, 3, 4]))
    sizes = {"width": draw(st.integers(0, 8)), "heads": heads}
    refused = [name for name, size in sizes.items() if size < 1]
    if draw(st.booleans()):
        sizes["key_value_heads"] = draw(st.integers(0, 4))
        if not sizes["key_value_heads"] or heads % sizes["key_value_heads"]:
            refused.append("key_value_heads")
    if head_size is not None:
        sizes["head_size"] = head_size
        refused += [] if head_size else ["head_size"]
    elif heads and sizes["width"] % heads:
        refused.append("width")
    told, keys = {}, draw(st.integers(0, 5))
    if draw(st.booleans()):
        told["normalize_qk"] = True
    kind = draw(st.sampled_from(["alpha", "scale", "policy"]))
    if kind == "policy" or (kind == "alpha" and told):
        told["policy"] = "x_transformers" if told else "ssmax"
    else:
        told[kind], fine = factor(draw, (heads, keys), torch.float32)
        refused += [] if fine else [kind]
    told["dropout_p"], fine = draw(st.sampled_from([(0.0, True), (math.nan, False), (2.0, False)]))
    refused += [] if fine else ["dropout_p"]
    return sizes, told, keys, draw(st.booleans()), refused


def check_module(drawn):
    sizes, told, keys, is_causal, refused = drawn

    def run():
        torch.manual_seed(0)
        module = Attention(**sizes, **told)
        module.output = nn.Identity()
        x = torch.randn(keys, sizes["width"])
        return module, x, module(x, is_causal=is_causal)

    made, refusal = outcome(run)
    if refusal:
        assert any(names(one, refusal) for one in refused), refusal
        return
    assert not refused
    module, x, z = made
    q, k, v = (module._heads(one(x)).detach() for one in (module.query, module.key, module.value))
    told = {name: value for name, value in told.items() if name != "dropout_p"}
    case = Case(q, k, v, {**told, "is_causal": is_causal, "enable_gqa": module.enable_gqa})
    z = z.detach().unflatten(-1, (sizes["heads"], module.head_size)).transpose(-3, -2)
    assert_right(case, z)


@HOW_MANY
def test_the_module(many):
    try_all(many, modules(), check_module)


class Plain(nn.Module):
    def forward(self, q, k, v, **told):
        return functional.scaled_dot_product_attention(q, k, v, **told)


THE_MODELS = ("attn_mask", "is_causal", "enable_gqa")


def check_rescale(case):
    own = {name: value for name, value in case.told.items() if name in THE_MODELS}
    said = {name: value for name, value in case.told.items() if name not in THE_MODELS}

    def run():
        with rescale(**said):
            return Plain()(case.q, case.k, case.v, **own)

    result, refusal = outcome(run)
    if refusal and not said:
        assert "nothing would change" in refusal
    else:
        judge(case, result, refusal, said)


@HOW_MANY
def test_rescale(many):
    try_all(many, cases(), check_rescale)


# --- the probe ------------------------------------------------------------------------------------


RANDOM = [name for name in DEFINITIONS if "random_" in name]


@st.composite
def calls(draw):
    """Return tensors and the options of a model's own call."""
    case = draw(cases())
    own = {name: value for name, value in case.told.items() if name in THE_MODELS}
    scale = draw(st.none() | st.floats(-3.0, 3.0) | st.floats(-30.0, 30.0).map(lambda e: 10.0**e))
    return case, own if scale is None else {**own, "scale": scale}


def check_probe(call):
    case, own = call
    model = Plain()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            with probe(model) as report:
                result = model(case.q, case.k, case.v, **own)
        except RuntimeError as error:
            assert "no queries or no keys" in str(error)  # noqa: PT017
            assert not case.q.numel() or not case.k.numel()
            return
    q, k, v = case.q.double(), case.expanded(case.k), case.expanded(case.v)
    scale = own.get("scale", q.shape[-1] ** -0.5)
    most = (q.abs().amax() * k.abs().amax() * q.shape[-1]).item()
    large = max(most, abs(scale) * most, v.abs().amax().item()) > 1e18
    assert report.not_finite in ([], ["Plain"])
    assert bool(report.not_finite) == any("NaN or infinity in Plain" in str(one) for one in caught)
    assert large or result.isnan().any() or not report.not_finite  # PyTorch at scales ≤ 0
    assert "nan" not in str(report)
    assert "NaN" not in report.to_json()
    rows = report.rows()
    seen, bias = mask_of(Case(q, k, v, own))
    if (mask := own.get("attn_mask")) is not None and mask.dtype != torch.bool:
        seen = (mask > -1e4).expand(seen.shape)  # by the definition of a hidden key
        bias = mask.double().masked_fill(mask <= -1e4, 0.0).expand(seen.shape)
    counted = seen.sum(-1) >= 2
    assert len(rows) == int(counted.sum())
    if report.not_finite or not len(rows):
        return
    logits = scale * (q @ k.mT) + bias
    sizes = abs(scale) * q.abs().sum(-1, keepdim=True) * k.abs().amax() + bias.abs()
    expected = [one(logits, seen) for one in (collision_probability, entropy, deviation)]
    slips = 32.0 * torch.finfo(torch.float32).eps * (q.shape[-1] + 4) * sizes.amax(-1) + 1e-30
    rows = rows.sort_values(["head", "sequence", "query"])

    def listed(x):
        heads = x.shape[-2] if x.ndim > 1 else 1
        return x.reshape(-1, heads, x.shape[-1]).movedim(1, 0)

    wanted = listed(counted)
    y, h, spread = (listed(x)[wanted].numpy() for x in expected)
    slip, n = listed(slips)[wanted].numpy(), listed(seen.sum(-1))[wanted].numpy()
    assert (rows["keys"].to_numpy() == n).all()
    found = rows["collision_probability"].to_numpy(), rows["entropy"].to_numpy()
    assert (found[0] * n > 1.0 - 1e-5).all()
    assert (found[0] < 1.0 + 1e-5).all()
    assert (found[1] >= 0.0).all()
    assert (found[1] < np.log(n) + 1e-5).all()
    known = slip < 0.1
    assert (np.abs(found[0] - y) < 4.0 * slip + 1e-5)[known].all()
    assert (np.abs(found[1] - h) < 4.0 * slip * (1.0 + np.log(n)) + 1e-5)[known].all()
    alpha = rows["alpha"].to_numpy()
    # A variance is a difference of squares, of sums in single precision, and kept in it.
    allowed = 2.0 * slip + 3e-3 * listed(sizes.amax(-1))[wanted].numpy() + 1e-22
    assert (np.abs(alpha - spread) < allowed).all()


def weights_of(logits, seen):
    return torch.softmax(logits.masked_fill(~seen, -math.inf), dim=-1).masked_fill(~seen, 0.0)


def collision_probability(logits, seen):
    return weights_of(logits, seen).square().sum(-1)


def entropy(logits, seen):
    p = weights_of(logits, seen)
    return -torch.special.xlogy(p, p).sum(-1)


def deviation(logits, seen):
    n = seen.sum(-1, keepdim=True).clamp(min=2)
    mean = (logits * seen).sum(-1, keepdim=True) / n
    return ((((logits - mean) * seen) ** 2).sum(-1, keepdim=True) / (n - 1)).sqrt()[..., 0]


@HOW_MANY
def test_the_probe(many, monkeypatch):
    monkeypatch.setattr(RandomScores, "columns", lambda *_: dict.fromkeys(RANDOM, [math.nan] * 6))
    try_all(many, calls(), check_probe)


@pytest.mark.parametrize("many", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_probe_beside_random_scores(many):
    try_all(many, calls(), check_probe)
