"""Attention that writes its softmax out, in the ways of public code, against the same code times t.

Each of `ZOO` takes q, k, v (2, 4, 9, 8) in float64 and t, which its own code multiplies q·k by.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnlib.models.interception import Mode
from attnlib.models.softmax_recorder import DIFFER, Recorder

B, H, L, D = 2, 4, 9, 8
Q, K, V = torch.randn(3, B, H, L, D, generator=torch.Generator().manual_seed(0)).double()
BIAS = torch.randn(H, L, L, generator=torch.Generator().manual_seed(1)).double()
CAUSAL = torch.ones(L, L).tril().bool()
SLOPES = 2.0 ** -torch.arange(1.0, H + 1.0).double()
LOWEST = torch.finfo(torch.float64).min


def matmul(q, k, v, t):
    return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * t / D**0.5, dim=-1), v)


def scaled_before(q, k, v, t):
    return ((q * D**-0.5) @ k.mT * t + BIAS).softmax(-1) @ v


def flattened_bmm(q, k, v, t):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    logits = torch.bmm(q * D**-0.5, k.transpose(1, 2)) * t
    logits = logits.view(B, H, L, L) + torch.zeros(L, L).double().masked_fill(~CAUSAL, LOWEST)
    weights = functional.softmax(logits.view(B * H, L, L), dim=-1)
    return torch.bmm(weights, v).view(B, H, L, D)


def alibi_baddbmm(q, k, v, t):
    bias = (SLOPES[:, None, None] * torch.arange(L)).repeat(B, 1, 1)
    batches = {"batch1": q.flatten(0, 1), "batch2": k.flatten(0, 1).mT}
    logits = bias.baddbmm(**batches, beta=1.0, alpha=D**-0.5 * t).view(B, H, L, L)
    logits = torch.where(CAUSAL, logits, torch.tensor(LOWEST))
    return functional.dropout(functional.softmax(logits, dim=-1), 0.1, False) @ v


def einsum(q, k, v, t):
    logits = torch.einsum("b h i d, b h j d -> b h i j", q, k) * D**-0.5 * t
    logits = logits.masked_fill(~CAUSAL, -torch.finfo(logits.dtype).max)
    return torch.einsum("bhij,bhjd->bhid", logits.softmax(dim=-1), v)


def tokens_first(q, k, v, t):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    logits = torch.einsum("bnhd,bmhd->bhnm", q, k).div(D**0.5) * t
    return torch.einsum("bhnm,bmhd->bnhd", nn.Softmax(dim=-1)(logits), v).transpose(1, 2)


def crossed(q, k, v, t):
    logits = q[:, :, :5] @ (k * D**-0.25).mT * D**-0.25 * t
    return nn.Softmax(-1)(logits.float()).type_as(v) @ v


def grouped_keys(q, k, v, t):
    k, v = (x[:, :2].repeat_interleave(2, dim=1) for x in (k, v))
    return ((q @ k.mT) * (t * D**-0.5) + LOWEST * (~CAUSAL).double()).softmax(-1) @ v


def shared_keys(q, k, v, t):
    logits = torch.einsum("bhid,bjd->bhij", q, k[:, 0]) * D**-0.5 * t
    return torch.einsum("bhij,bjd->bhid", logits.softmax(-1), v[:, 0])


def in_place(q, k, v, t):
    logits = (q @ k.mT) * t
    logits /= D**0.5
    logits += BIAS
    logits.masked_fill_(~CAUSAL, -math.inf)
    return torch.softmax(logits, dim=-1, dtype=torch.float32).to(v.dtype) @ v


def by_index(q, k, v, t):
    logits = q @ k.mT * (t * D**-0.5)
    logits[..., ~CAUSAL] = -1e9
    logits = logits - logits.max(dim=-1, keepdim=True).values.expand_as(logits)
    return logits.softmax(-1) @ v


def capped(q, k, v, t):
    return (20.0 * torch.tanh(q @ k.mT * t / D**0.5 / 20.0) + BIAS).softmax(-1) @ v


def values_first(q, k, v, t):
    weights = (q @ k.mT * (t * D**-0.5)).masked_fill(k @ k.mT < -1.0, -math.inf).softmax(-1)
    return (v.mT @ weights.transpose(-2, -1)).mT


def windows(q, k, v, t):
    logits = (q * D**-0.5) @ k.transpose(-2, -1) * t + BIAS.unsqueeze(0)
    logits = logits.view(1, B, H, L, L) + torch.zeros(1, B, 1, L, L)
    return functional.softmax(logits.view(-1, H, L, L), dim=-1) @ v


def sinks(q, k, v, t):
    logits = q @ k.mT * (t * D**-0.5)
    logits = torch.cat([logits, torch.ones(B, H, L, 1).double()], dim=-1)
    return functional.softmax(logits, dim=-1)[..., :-1] @ v


def keys_first(q, k, v, t):
    return (k @ q.mT * (t * D**-0.5)).mT.softmax(-1) @ v


def added_in_parts(q, k, v, t):
    return torch.add(BIAS, q @ k.mT, alpha=t * D**-0.5).softmax(-1) @ v


def topmost(q, k, v, t):
    logits = q @ k.mT * (t * D**-0.5)
    least = logits.topk(4, dim=-1)[0][..., -1, None]
    return logits.masked_fill(logits < least, -math.inf).softmax(-1) @ v


ZOO = [
    *(matmul, scaled_before, flattened_bmm, alibi_baddbmm, einsum, tokens_first, crossed),
    *(grouped_keys, shared_keys, in_place, by_index, capped, windows, sinks, topmost, values_first),
    *(keys_first, added_in_parts),
]
IN_DOUBLE = [code for code in ZOO if code not in (crossed, in_place)]


class Multiply(Mode):
    """Multiplies all products, by a number or one for each query."""

    def __init__(self, times=None):
        super().__init__()
        self.times, self.seen, self.recorder = times, [], Recorder(list)
        self.values = None

    def valued(self, values, output, changed):
        self.values, self.weights_changed = (values, output), changed

    def changed(self, call):
        self.seen.append(call)
        call.on_values = self.valued
        return None if self.times is None else call.logits_times(self.times)

    def run_function(self, func, args, kwargs):
        return self.recorder.run(func, args, kwargs, self.changed)


@pytest.mark.parametrize("code", ZOO)
def test_the_product_times_t_is_the_code_with_t_written_in(code):
    with Multiply() as watch:
        output = code(Q, K, V, 1.0)
    assert torch.equal(output, code(Q, K, V, 1.0))
    (call,) = watch.seen
    assert call.start.dimension == D
    with Multiply(1.7):
        output = code(Q, K, V, 1.0)
    rounding = 1e-14 if code in IN_DOUBLE else 1e-6
    torch.testing.assert_close(output, code(Q, K, V, 1.7), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("code", IN_DOUBLE)
def test_gradients_pass_through_the_record(code):
    def outputs(t, q):
        with Multiply(t):
            return code(q, K, V, 1.0)

    t, q = (x.requires_grad_() for x in (torch.tensor(1.3).double(), Q.clone()))
    assert torch.autograd.gradcheck(outputs, (t, q), fast_mode=True)


# --- what is none, and what cannot be run again -------------------------------------------------

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(4))
TABLE = nn.Parameter(torch.randn(6, 8, generator=torch.Generator().manual_seed(6)))
EXPERTS = nn.Parameter(torch.randn(8, 6, generator=torch.Generator().manual_seed(5)))

NONE = {
    "router": lambda: nn.Linear(8, 3)(X).softmax(-1),
    "router without a module": lambda: (X @ EXPERTS).softmax(-1),
    "layers that are learned": lambda: functional.relu(X @ EXPERTS) @ TABLE,
    "router by einsum": lambda: torch.einsum("bnd,de->bne", X, EXPERTS).softmax(-1),
    "router of each sequence": lambda: torch.bmm(X, EXPERTS.expand(2, 8, 6)).softmax(-1),
    "classes": lambda: functional.layer_norm(X @ X.mT @ X, (8,)).softmax(-1),
    "pooling over channels": lambda: X.mean(1, keepdim=True).softmax(-1) * X,
    "masks of classes": lambda: torch.einsum("bqc,bqn->bcn", X.softmax(-1), (X @ X.mT).sigmoid()),
    "linear attention": lambda: X.softmax(-1) @ (X.exp().mT @ X) / X.exp().sum(-1, keepdim=True),
    "mixture of experts": lambda: (
        nn.Linear(8, 3)(X).softmax(-1)[..., None, :] @ X[..., None, :3].mT
    ),
    "exp beside a softmax": lambda: (X @ X.mT).exp().sum(-1),
    "a vector's product": lambda: (X[0, 0] @ X.mT[:, None]).mT.softmax(-1),
    "a rotation": lambda: torch.linalg.svd(X.mT @ X)[2] @ X.mT,
    "after attention": lambda: nn.Linear(8, 3)(matmul_of(X)).softmax(-1),
}


def matmul_of(x):
    return x @ x.mT @ x


def through_a_function(x):
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return (x @ x.mT).softmax(-1) @ x

    return Attention.apply(x.clone().requires_grad_())


@torch.library.custom_op("attnlib_tests::fwd", mutates_args=())
def operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT).softmax(-1) @ v


def sampled(x):
    places = torch.zeros(2, 6, 3, 2)
    samples = functional.grid_sample(x[:, None], places, align_corners=False)
    return (nn.Linear(8, 3)(x).softmax(-1)[:, None] * samples).sum(-1)


UNKNOWN = {
    "attnlib_tests::fwd": lambda x: operator(x, x, x),
    "known keys": sampled,
    "as in linear attention": lambda x: torch.einsum("bqd,bkd,bkc->bqc", x, x, x),
    "learned logits": lambda x: (TABLE @ TABLE.T).relu().softmax(-1) @ x,
    "its softmax is not of a product": lambda x: (-torch.cdist(x, x)).softmax(-1) @ x,
    "no softmax": lambda x: (x @ x.mT).sigmoid() @ x,
    "no softmax of its logits": lambda x: functional.normalize((x @ x.mT).relu(), 1, -1) @ x,
    "exp and a sum": lambda x: (x @ x.mT).log_softmax(-1).exp() @ x,
    "made in a torch.autograd.Function": through_a_function,
    "made by softmin": lambda x: functional.softmin(-x @ x.mT, -1) @ x,
    "learned": lambda x: (x @ TABLE.T).softmax(-1) @ TABLE,
    "another kernel": lambda x: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *[x[:, None]] * 3
    ),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_attention_in_another_form_is_named(why):
    with Multiply(2.0) as watch:
        UNKNOWN[why](X)
    assert not watch.seen
    noted = {**watch.recorder.unreached, **watch.recorder.hints}
    assert any(why in reason for reason in noted.values())


@pytest.mark.parametrize("name", NONE)
def test_a_softmax_that_is_no_attention_is_not_taken_for_it(name):
    with Multiply(2.0) as watch:
        output = NONE[name]
        torch.manual_seed(0)
        output = output()
    assert not watch.seen
    assert not watch.recorder.unreached
    torch.manual_seed(0)
    assert torch.equal(output, NONE[name]())


def written_through_a_view(q, k):
    logits = q @ k.mT
    logits.view(B, H, L, L)[..., ~CAUSAL] = -math.inf
    return logits.softmax(-1)


def hidden_by_data(q, k):
    logits = q @ k.mT
    logits.data.masked_fill_(~CAUSAL, -math.inf)
    return logits.softmax(-1)


def loop(q, k):
    logits = torch.empty(B, H, L, L)
    for head in range(H):
        logits[:, head] = q[:, head] @ k[:, head].mT
    return logits.softmax(-1)


def written_over(q, k):
    q = q.clone()
    logits = q @ k.mT
    q.zero_()
    return logits.softmax(-1)


RETRIEVED = K[:, :, None] - Q[:, :, :, None]
"""Other keys for each query."""


def topmost_put_back(q, k):
    logits, places = (q @ k.mT).topk(3)
    return torch.zeros(B, H, L, L).double().scatter_(-1, places, logits.exp_()) @ V


UNREACHED = {
    "weights of exp": topmost_put_back,
    "exp and a sum": lambda q, k: (q @ k.mT).exp() @ V,
    "axis 2": lambda q, k: (k @ q.mT).softmax(2),
    "conv2d": lambda q, k: nn.Conv2d(H, H, 1).double()(q @ k.mT).softmax(-1),
    "linear": lambda q, k: (
        nn.Linear(H, H).double()((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
    ),
    "two products": lambda q, k: (q @ k.mT + k @ q.mT).softmax(-1),
    "of two products": lambda q, k: torch.baddbmm(q[0] @ q[0].mT, q[0], k[0].mT).softmax(-1),
    "logits are made of two": lambda q, k: torch.cat(
        [q @ k.mT, torch.einsum("bhid,bhijd->bhij", q, RETRIEVED)], -1
    ).softmax(-1),
    "made of two": lambda q, k: (q @ k.mT).add_((q[:, :, :, None] * RETRIEVED).sum(-1)).softmax(-1),
    "squared lengths": lambda q, k: (
        (q**2).sum(-1, keepdim=True) + k.norm(dim=-1)[:, :, None] ** 2 - 2 * q @ k.mT
    ).softmax(-1),
    "dropped at random": lambda q, k: functional.dropout(q @ k.mT).softmax(-1),
    "drawn": lambda q, k: (q @ k.mT + torch.bernoulli((q @ k.mT).sigmoid())).softmax(-1),
    "give again": hidden_by_data,
    "another view": written_through_a_view,
    "put together": loop,
    "written over": written_over,
}


@pytest.mark.parametrize("why", UNREACHED)
def test_what_cannot_be_run_again_is_named(why):
    with Multiply(2.0) as watch:
        UNREACHED[why](Q, K)
    assert not watch.seen
    (reason,) = watch.recorder.unreached.values()
    assert why in reason


def test_squared_distances_of_positions_are_a_bias():
    places = torch.arange(D).double()
    with Multiply(2.0) as watch:
        bias = (places[:, None] - places)[None] ** 2
        (Q[:, :, :D] @ K[:, :, :D].mT - bias).softmax(-1)
    assert watch.seen
    assert not watch.recorder.unreached


def test_logits_that_are_written_unseen_are_named_after_calls_of_the_same_kind():
    with Multiply(2.0) as watch:
        (Q @ K.mT).softmax(-1)
        hidden_by_data(Q, K)
    assert len(watch.seen) == 1
    assert list(watch.recorder.unreached.values()) == [DIFFER]


@pytest.mark.parametrize("gated", ["values", "outputs", "weights"])
def test_logits_that_gate_beside_their_softmax_are_named(gated):
    with Multiply(2.0) as watch:
        logits = Q @ K.mT
        gate = logits.logsumexp(-1, keepdim=True).sigmoid()
        if gated == "values":
            (V * gate).mT @ logits.softmax(-1)
        elif gated == "outputs":
            logits.softmax(-1) @ V * gate
        else:
            logits.softmax(-1) * gate @ V
    (reason,) = watch.recorder.unreached.values()
    assert "beside their softmax" in reason


def sums_over_sequences(q, k, v, t):
    logits = torch.einsum("rhid,rhjd->hij", q, k) * D**-0.5 * t
    return torch.einsum("hij,rhjd->hidr", logits.softmax(-1), v).flatten(2)[None]


@pytest.mark.parametrize(
    "code",
    [matmul, flattened_bmm, einsum, tokens_first, shared_keys, values_first, sums_over_sequences],
)
def test_values_are_had_where_weights_meet_them(code):
    with Multiply() as watch:
        output = code(Q, K, V, 1.0)
    (call,) = watch.seen
    layout, (values, attended) = call.layout._replace(heads=H), watch.values
    assert torch.equal(layout.by_head(attended), output)
    weights = layout.by_head(call.logits.softmax(-1))
    torch.testing.assert_close(weights @ layout.by_head(values), output)
    call.layout = layout
    q, k = call.operands()
    scale = call.step.scale()
    assert scale == pytest.approx(1.0 if code is flattened_bmm else D**-0.5)
    bias = layout.by_head(call.step.run(0.0, {}))
    shown = layout.by_head(call.logits)
    torch.testing.assert_close(scale * (q @ k.mT) + bias, shown)


def heads_of(logits, heads, batch):
    class Module(nn.Module):
        num_heads = heads

    watch, module = Multiply(), Module()
    watch.recorder.running = lambda: [module]
    with watch:
        logits().softmax(-1)
    (call,) = watch.seen
    return call.visible_keys().shape[-3], call.layout.doubt(batch)


@pytest.mark.parametrize(
    ("logits", "batch", "heads", "certain"),
    [
        (lambda: Q[0] @ K[0].mT, 1, H, True),  # heads in the batch
        (lambda: Q.flatten(0, 1) @ K.flatten(0, 1).mT, B, H, True),
        (lambda: Q[0] @ K[0].mT, H, H, False),  # or sequences
        (lambda: torch.einsum("bhqd,bhkd->bqhk", Q, K), B, H, True),
        (lambda: torch.einsum("bhqd,bhkd->hbqk", Q, K), B, H, True),
        (lambda: Q[:, :2] @ K[:, :2].mT, B, 2, False),  # groups: 2 · 2 are no heads
        (lambda: Q[:, :, None].expand(B, H, H, L, D) @ K[:, :, None].mT, B, H, False),
    ],
)
def test_heads_are_told_apart_or_in_doubt(logits, batch, heads, certain):
    count, doubt = heads_of(logits, H, batch)
    assert (count, not doubt) == (heads, certain)


def test_sequences_behind_heads_of_unknown_number_leave_a_doubt():
    assert heads_of(lambda: Q.transpose(0, 1) @ K.transpose(0, 1).mT, 0, B)[1]


@pytest.mark.parametrize("batch", [B, H])
def test_heads_folded_before_the_batch_are_told_by_the_axes_they_come_from(batch):
    class Module(nn.Module):
        num_heads = H

    times = torch.arange(1.0, H + 1.0).double()[:, None]
    watch, module = Multiply(times), Module()
    watch.recorder.running = lambda: [module]
    with watch:
        packed = torch.randn(batch, L, 2 * H * D, generator=torch.Generator().manual_seed(0))
        q, k = (x.view(batch, L, H, D).double().transpose(1, 2) for x in packed.chunk(2, -1))
        first, second = (x.transpose(0, 1).contiguous().view(H * batch, L, D) for x in (q, k))
        logits = first @ second.mT
        weights = logits.softmax(-1)
    (call,) = watch.seen
    torch.testing.assert_close(call.layout.by_head(logits), q @ k.mT)
    expected = (q @ k.mT * times.unsqueeze(-1)).softmax(-1).transpose(0, 1)
    torch.testing.assert_close(weights, expected.flatten(0, 1))
