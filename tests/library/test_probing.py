"""What the probe measures, against full weights, for every kind of call."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from attnlib.attention import rescale
from attnlib.calibration import scale_gradient
from attnlib.probing import DEFINITIONS, measure, probe
from attnlib.probing.random_scores import RandomScores
from tests.library import foreign

sdpa = functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def without_theory(monkeypatch):
    """Leave out the columns of random scores, which take longer than all others."""
    monkeypatch.setattr(
        RandomScores,
        "columns",
        lambda self, alphas: {
            name: np.full(alphas.shape, np.nan) for name in DEFINITIONS if "random_" in name
        },
    )


# --- full weights, one row at a time ------------------------------------------------------------


def by_full_weights(calls):
    """Return the measured columns of a table for heads of (q, k, v, options), in float64."""
    return [line for call in calls for line in one_call(*call)]


def one_call(q, k, v, attn_mask=None, is_causal=False, scale=None, past=0, **_):
    q, k, v = (x.detach().double().reshape(-1, *x.shape[-3:]) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    products = q @ k.mT
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    logits = scale * products
    visible = torch.ones_like(logits, dtype=torch.bool)
    if is_causal:
        visible = visible.tril(past)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        visible = attn_mask.expand_as(logits)
    elif attn_mask is not None:
        visible = (attn_mask > -1e4).expand_as(logits)
        logits = logits + attn_mask.double().clamp(min=-1e4)
    return [
        one_head(scale, *(x[:, head] for x in (q, products, logits, visible, v)))
        for head in range(q.shape[1])
    ]


def one_head(scale, q, products, logits, visible, v):
    names = ("n", "score", "logit", "y", "entropy", "rest", "z", "value", "peak", "sum", "first")
    table = {name: [] for name in names}
    for sequence in range(len(q)):
        first = visible[sequence].any(dim=0).nonzero()[0]
        values = v[sequence][visible[sequence].any(dim=0)]
        variance = float(values.var(dim=0).mean())
        for row, seen in enumerate(visible[sequence]):
            if seen.sum() < 2:
                continue
            p = torch.softmax(logits[sequence, row][seen], dim=0)
            output = p @ v[sequence][seen]
            square = float(((output - values.mean(dim=0)) ** 2).mean()) + variance / len(values)
            top = p.argmax()
            others = torch.cat([p[:top], p[top + 1 :]])
            numbers = {
                "n": int(seen.sum()),
                "score": float(products[sequence, row][seen].var()) / q.shape[-1],
                "logit": float(logits[sequence, row][seen].var()),
                "y": float((p**2).sum()),
                "entropy": float(-(p * p.log()).sum()),
                # 1 − Σp², without the difference
                "rest": float((others * (1 - others)).sum() + p[top] * others.sum()),
                "z": square,
                "value": variance,
                "peak": float(logits[sequence, row][seen].max()),
                "sum": float(logits[sequence, row][seen].exp().sum().log()),
                "first": float(p[(seen.nonzero() == first).squeeze(1)].sum()),
            }
            for name, number in numbers.items():
                table[name].append(number)
    n, score, logit, y, entropy, rest, z, value, peak, total, first = map(np.array, table.values())
    alpha, critical = math.sqrt(logit.mean()), np.sqrt(2 * np.log(n))
    return {
        "rows": len(n),
        "keys": n.mean(),
        "dimension": q.shape[-1],
        "scale": scale,
        "score_std": math.sqrt(score.mean()),
        "alpha": alpha,
        "critical_alpha": critical.mean(),
        "alpha_to_critical": (np.sqrt(logit) / critical).mean(),
        "wide": (np.sqrt(logit) >= critical).mean(),
        "collision_probability": y.mean(),
        "effective_keys": 1 / y.mean(),
        "entropy": entropy.mean(),
        "gradient": (alpha * rest).mean(),
        "gradient_mean_log": np.log(alpha * rest).mean(),
        "largest_logit": peak.max(),
        "log_sum_exp": total.mean(),
        "largest_weight": np.exp(peak - total).mean(),
        "first_weight": first.mean(),
        "value_std": math.sqrt(value.mean()),
        "output_std": math.sqrt(z.mean()),
    }


def assert_same(report, calls, rtol=2e-6):
    table, expected = report.table(), by_full_weights(calls)
    assert len(table) == len(expected)
    for name in expected[0]:
        numbers = [line[name] for line in expected]
        np.testing.assert_allclose(table[name], numbers, rtol=rtol, atol=rtol, err_msg=name)


# --- every kind of call -------------------------------------------------------------------------


class Caller(nn.Module):
    """A model that hands its arguments to scaled_dot_product_attention."""

    def forward(self, *args, **kwargs):
        return sdpa(*args, **kwargs)


def draw(*shape, seed=0, dtype=torch.float32):
    rng = np.random.default_rng([seed, *shape])
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def qkv(queries=11, keys=11, key_heads=4, size=8):
    return (
        2.0 * draw(2, 4, queries, size),
        draw(2, key_heads, keys, size, seed=1),
        0.5 + draw(2, key_heads, keys, 5, seed=2),
    )


def some_keys(*shape):
    """Return a mask that hides keys at random; one query sees none, one a single key."""
    mask = torch.from_numpy(np.random.default_rng(4).random(shape) < 0.6)
    mask[..., 2, :] = False
    mask[..., 3, :] = torch.arange(shape[-1]) == 5
    return mask


SEEN = some_keys(11, 11)
BOTH = torch.stack(2 * [torch.ones_like(SEEN).tril()] + 2 * [SEEN])[:, None]
BIAS = draw(2, 1, 11, 11, seed=3)
CALLS = {
    "causal, a scale": {"is_causal": True, "scale": 1.0},
    "mask of each head": {"attn_mask": some_keys(2, 4, 11, 11)},
    "mask of keys": {"attn_mask": torch.arange(11) < torch.tensor([8, 11]).view(2, 1, 1, 1)},
    "numbers that add and hide": {"attn_mask": BIAS.masked_fill(~SEEN, -math.inf)},
    "-10000": {"attn_mask": torch.zeros(11, 11).masked_fill(~SEEN, -1e4)},
    "a causal bias of all heads": {
        "attn_mask": BIAS[0, 0].masked_fill(~SEEN.new_ones(11, 11).tril(), -math.inf)
    },
    "scale of nothing": {"scale": 0.0, "attn_mask": BIAS},
    "negative scale": {"scale": -0.7},
}


@pytest.fixture(params=[(2**20, 128), (100, 4), (1, 128)], ids=str)
def blocks(request, monkeypatch):
    """How many scores, and how many rows of a causal mask, are worked on at a time."""
    monkeypatch.setitem(measure.BLOCK, "cpu", request.param[0])
    monkeypatch.setattr(measure, "CAUSAL_ROWS", request.param[1])


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_measured_as_its_full_weights(name):
    model, tensors = Caller(), qkv()
    with probe(model) as report:
        output = model(*tensors, **CALLS[name])
    assert torch.equal(torch.nan_to_num(output), torch.nan_to_num(sdpa(*tensors, **CALLS[name])))
    order = "attn_mask", "is_causal", "scale"
    assert_same(report, [(*tensors, *(CALLS[name].get(n) for n in order))])


@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("lengths", [(5, 9), (9, 5)])
def test_causal_rows_begin_at_the_first_key_or_end_at_the_last(lengths):
    model, tensors = Caller(), qkv(*lengths)
    with probe(model) as report:
        model(*tensors, is_causal=True)
        model(*tensors, attn_mask=causal_upper_left(*lengths))
    (line, *_) = by_full_weights([(*tensors, None, True)])
    assert report.table()["rows"][0] == 2 * line["rows"]
    assert report.table()["entropy"][0] == pytest.approx(line["entropy"], rel=1e-6)
    with probe(model) as report:
        model(*tensors, attn_mask=causal_lower_right(*lengths))
    past = lengths[1] - lengths[0]
    assert_same(report, [(*tensors, None, True, None, past)])


def test_small_calls_of_several_layers_keep_their_own_numbers():
    model, calls = nn.ModuleList(Caller() for _ in range(3)), []
    parts = torch.arange(11) < torch.tensor([11, 8]).view(2, 1, 1, 1), BOTH[1:3], SEEN
    with probe(model, theory=False) as report:
        for layer, mask in zip(model, parts, strict=True):
            q, k, v = (len(calls) + 1.0 + x for x in qkv())
            calls.append((q.clone(), k, v, mask))
            layer(q, k, v, attn_mask=mask)
            q.zero_()  # after the call
    assert list(report.table()["layer"]) == [name for name in "012" for _ in range(4)]
    assert_same(report, calls)


def test_shared_heads_and_dimensions_that_broadcast():
    q, k, v = qkv(key_heads=2)
    model = Caller()
    with probe(model) as report:
        model(q, k, v, enable_gqa=True, is_causal=True)
    assert_same(report, [(q, k, v, None, True)])
    for shape in [(11,), (2, 3, 4, 11)]:
        many = draw(*shape, 8, seed=5)
        k, v = draw(*shape, 8, seed=6), draw(*shape, 3, seed=7)
        mask = some_keys(*shape[-2:-1], 11, 11) if len(shape) == 4 else None
        with probe(model) as report:
            model(many, k, v, attn_mask=mask)
        full = [x.reshape(-1, *([1] * (len(shape) == 1)), *x.shape[-3:]) for x in (many, k, v)]
        assert_same(report, [(*full, mask)])
        assert len(report.table()) == (1 if len(shape) == 1 else 4)


def test_weights_are_those_before_dropout():
    q, k, v = qkv()
    with probe(model := Caller()) as report:
        for options in ({"is_causal": True}, {"attn_mask": SEEN}):
            model(q, k, v, **options, dropout_p=0.5)
    assert_same(report, [(torch.cat([q, q]), torch.cat([k, k]), torch.cat([v, v]), BOTH)])


def test_sums_of_half_precision_are_in_single_precision_and_autocast_rounds_first():
    tensors = [x.bfloat16() for x in qkv(60, 60)]
    expected = by_full_weights([(*tensors, None, True)])
    with probe(model := Caller()) as report:
        model(*tensors, is_causal=True)
    with torch.autocast("cpu", torch.bfloat16), probe(model) as rounded:
        assert model(*qkv(60, 60), is_causal=True).dtype == torch.bfloat16
    for table in (report.table(), rounded.table()):
        for name in expected[0]:
            numbers = [line[name] for line in expected]
            # The output is the model's own, rounded.
            rtol = 1e-2 if name == "output_std" else 3e-6
            np.testing.assert_allclose(table[name], numbers, rtol=rtol, err_msg=name)


def test_nearly_one_key_has_its_digits():
    # Two logits 400 apart: 1 − Y = 2e^{−400}, and 2e^{−50} after twenty-five rows of thousands.
    q, k = torch.tensor([[1.0], [0.125]]), torch.tensor([[400.0], [0.0]])
    with probe(model := Caller()) as report:
        model(q, k, k, scale=1.0)
    alpha = math.sqrt((400.0**2 + 50.0**2) / 2 / 2)
    expected = math.log(alpha) + math.log(2.0) - 225.0
    line = report.table().loc[0]
    assert line["gradient_mean_log"] == pytest.approx(expected, rel=1e-6)
    assert line["entropy"] == pytest.approx(51 * math.exp(-50.0) / 2, rel=1e-4)


# --- attention that writes its softmax out -------------------------------------------------------


def biased(way, n):
    """Return a causal layer with a bias of each head, written out or fused."""
    bias = torch.arange(4.0)[:, None, None] * torch.linspace(-1, 1, n)
    mask = bias.expand(4, n, n).masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -1e9)
    return nn.Sequential(foreign.XCA(way, 0.5, mask=mask, sharper=4.0))


@pytest.mark.parametrize("way", ["matmul", "einsum"])
@pytest.mark.parametrize("rows", [None, 24])
def test_attention_that_is_written_out_is_measured_as_a_call_is(way, rows):
    x = torch.randn(2, 30, 32, generator=torch.Generator().manual_seed(3))
    tables = []
    for model in (biased(way, 30), biased("fused", 30)):
        expected = model(x)
        with probe(model, rows=rows, targets="previous") as report:
            assert torch.equal(model(x), expected)
        tables.append(report.table())
    ours, theirs = tables
    assert list(ours["layer"]) == ["0"] * 4
    for column in theirs.columns[1:]:
        np.testing.assert_allclose(ours[column], theirs[column], rtol=2e-4, atol=2e-5)
    known = ["scale", "score_std", "value_std", "output_std", "target_gap"]
    assert np.isfinite(ours[known].to_numpy()).all()


def test_half_a_model_is_never_measured_without_a_word():
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(3))
    model = nn.Sequential(*biased("matmul", 9), *biased("fused", 9))
    with probe(model) as report:
        model(x)
    assert list(report.table()["layer"]) == ["0"] * 4 + ["1"] * 4
    model = nn.Sequential(*biased("matmul", 9), foreign.Performer())
    with pytest.warns(UserWarning, match=r"not measured: 1 \(Performer\): .* exp"):  # noqa: SIM117
        with probe(model) as report:
            model(x)
    assert "Not measured: 1 (Performer)" in str(report)
    assert "Performer" in report.to_json()


def test_a_module_that_attends_twice_says_of_each_what_was_measured():
    class Twice(nn.Module):
        def forward(self, x):
            y = 0.9 * (x @ x.mT).softmax(-1) @ x
            self.weights = (y @ y.mT / 9.0).softmax(-1)
            return self.weights @ y + self.weights.detach() @ x

    model = Twice()
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(3))
    with pytest.warns(UserWarning, match="not measured"), probe(model) as report:
        model(x)
    assert report.not_measured == ["Twice: its weights are changed after the softmax"]
    assert report.notes == ["Twice: its weights meet values more than once: the first are measured"]
    (collision,) = report.table()["collision_probability"]
    assert collision == pytest.approx(model.weights.square().sum(-1).mean().item(), rel=1e-5)
    with pytest.raises(RuntimeError, match="softmax over one key alone"), probe(model):
        model(x[:, :1])


class Other(nn.Module):
    """A model that averages in a way of its own."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, q, k, v):
        return self.way(q, k, v)


@pytest.mark.parametrize(
    ("way", "says"),
    [
        (lambda q, k, v: (k @ q.mT).softmax(-2).mT @ v, "its softmax is over axis -2"),
        (lambda q, k, v: (k @ q.mT).tanh().mT.softmax(-1) @ v, "axes exchanged or joined"),
        (lambda q, k, v: (q @ k.mT).softmax(-1).inverse() @ v, "weights are changed after"),
    ],
)
def test_products_in_another_order_are_refused_by_their_cause(way, says):
    with pytest.raises(RuntimeError, match=says), probe(model := Other(way)):
        model(*qkv())


def complex_product(q, k):
    return torch.complex(q[..., ::2], q[..., 1::2]) @ torch.complex(k[..., ::2], k[..., 1::2]).mH


@pytest.mark.parametrize(
    "logits",
    [
        lambda q, k, bias: torch.add(bias, q @ k.mT, alpha=0.3),
        lambda q, k, bias: bias.sub(q @ k.mT, alpha=0.3),
        lambda q, k, bias: (k @ q.mT * 0.5).mT - bias,
        lambda q, k, bias: 2.0 - q @ k.mT,
        lambda q, k, bias: complex_product(q, k).real * 0.3 + bias,
    ],
)
def test_signs_and_factors_of_sums_are_measured(logits):
    q, k, v = qkv()
    bias = draw(11, 11, seed=3)
    with probe(model := Other(lambda q, k, v: logits(q, k, bias).softmax(-1) @ v)) as report:
        model(q, k, v)
    weights = logits(q, k, bias).softmax(-1)
    expected = weights.square().sum(-1).mean((0, 2))
    np.testing.assert_allclose(report.table()["collision_probability"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "average",
    [
        lambda weights, v: torch.einsum("bhjd,bhij->bhid", v, weights),
        lambda weights, v: torch.einsum("bhdj,bhji->bhid", v.mT, weights.mT),
        lambda weights, v: (v.mT @ weights.mT.contiguous()).mT,
    ],
)
def test_values_before_their_weights_are_measured(average):
    def of(way):
        with probe(model := Other(lambda q, k, v: way((q @ k.mT).softmax(-1), v))) as report:
            model(*qkv())
        return report.table()[["value_std", "output_std"]]

    np.testing.assert_allclose(of(average), of(torch.matmul), rtol=1e-6)


def test_weights_that_average_weights_are_named():
    def squared(q, k, v):
        weights = (q @ k.mT).softmax(-1)
        return weights @ weights @ v

    with probe(model := Other(squared)) as report:
        model(*qkv())
    assert "its weights average weights" in report.notes[0]


def test_another_scale_of_written_out_attention_is_measured():
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(3))
    tables = []
    for model in (biased("matmul", 9), biased("fused", 9)):
        with probe(model) as report, rescale(factor=3.0):
            model(x)
        tables.append(report.table())
    np.testing.assert_allclose(tables[0]["scale"], 1.5)
    for column in ("scale", "alpha", "score_std", "entropy", "output_std"):
        np.testing.assert_allclose(tables[0][column], tables[1][column], rtol=1e-4)


class Flattened(nn.Module):
    num_heads = 4

    def __init__(self, flat):
        super().__init__()
        self.flat = flat
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        qkv = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = (t.flatten(0, 1) if self.flat else t for t in qkv)
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return z.reshape(len(x), 4, -1, 8).transpose(1, 2).flatten(2)


def test_heads_that_are_flattened_into_the_batch_are_told_apart():
    texts = [torch.randn(b, 9, 32, generator=torch.Generator().manual_seed(b)) for b in (2, 3, 2)]
    tables, slopes = [], []
    for flat in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(Flattened(flat))
        with probe(model) as report:
            for x in texts:
                model(x)
        tables.append(report.table())
        loss = lambda model, x: model(x).square().mean()  # noqa: E731
        slopes.append(scale_gradient(model, texts, loss).value)
    pd.testing.assert_frame_equal(*tables)
    np.testing.assert_allclose(*slopes, rtol=1e-5)
