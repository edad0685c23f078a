"""QK-clip: the logits of the same batch afterwards, for every kind of module; what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from attnlib.probing import Monitor, clip, probe
from experiments.compatibility import given, tiny
from experiments.lab.model import Config, Transformer
from tests.library.foreign import XCA
from tests.library.test_probing import draw

WIDTH, HEADS, LENGTH = 32, 4, 12
TOKENS = torch.arange(2 * LENGTH).reshape(2, LENGTH) % 7


class One(nn.Module):
    """A model that is one module, called as `call` says."""

    def __init__(self, attention, call):
        super().__init__()
        self.attention, self.call = attention, call

    def forward(self):
        return self.call(self.attention)


def vectors(width=WIDTH, seed=1):
    return draw(2, LENGTH, width, seed=seed)


def multi_head(**options):
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)
    keys = vectors(options.get("kdim", WIDTH), seed=2)
    return One(attention, lambda m: m(vectors(), keys, vectors()))


def of_transformers(family):
    model = tiny(family, "sdpa", num_hidden_layers=1)
    return One(model, lambda m: m(**given(family, padded=False)))


def packed(named=True):
    """Return attention with one linear layer, whose name says nothing of its order."""
    model = One(XCA("fused"), lambda m: m(vectors()))
    if named:
        model.attention.packed_projection = "wqkv"
    return model


MODELS = {
    "nn.MultiheadAttention": multi_head,
    "keys of another width": lambda: multi_head(kdim=24, vdim=WIDTH),
    "a key beside the others": lambda: multi_head(add_bias_kv=True),
    "the laboratory": lambda: One(
        Transformer(Config(width=WIDTH, depth=1, head_size=8, sequence=LENGTH, alpha=3.0)),
        lambda m: m(TOKENS),
    ),
    "a module that says how it is packed": packed,
    "GPT-2": lambda: of_transformers("GPT2"),
    "BERT": lambda: of_transformers("Bert"),
    "OPT": lambda: of_transformers("OPT"),
}


def made(model):
    """Return the model with random biases."""
    torch.manual_seed(0)
    model = MODELS[model]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.normal_(std=5.0 if name.endswith("bias_k") else 1.0)
    return model


def measured(model):
    with probe(model, theory=False) as report:
        model()
    return report.table()


@pytest.mark.parametrize("name", MODELS)
def test_the_largest_logit_of_the_same_batch_is_the_limit(name):
    model = made(name)
    copy = [p.detach().clone() for p in model.parameters()]
    before = measured(model)
    limit = float(np.sort(before["largest_logit"])[[1, 2]].mean())  # two of four are above
    assert limit > 0.0
    clipped = clip(model, before, limit)
    above = (before["largest_logit"] > limit).to_numpy()
    assert [head for _, head, _ in clipped] == list(np.flatnonzero(above))
    assert [largest for *_, largest in clipped] == list(before["largest_logit"][above])
    after = measured(model)
    assert after["largest_logit"][above].to_numpy() == pytest.approx(limit, rel=1e-5)
    for column in before.columns:
        same = before[column][~above].equals(after[column][~above])
        assert same, column
    # Queries and keys have the factor half each: as many numbers of each.
    changed = torch.cat(
        [(p / old)[p != old] for p, old in zip(model.parameters(), copy, strict=True)]
    )
    ratios = np.unique(np.round(changed[changed.isfinite()].detach().numpy(), 3))
    factors = np.sqrt(limit / before["largest_logit"][above])
    assert ratios == pytest.approx(np.unique(np.round(factors, 3)), abs=2e-3)


def test_heads_that_share_keys():
    model = of_transformers("Llama")
    before = measured(model)
    largest = before["largest_logit"].to_numpy()
    pairs = largest.reshape(2, 2)
    clipped = int(pairs.max(axis=1).argmax())
    limit = max(pairs[1 - clipped].max(), pairs[clipped].min()) * 1.01
    assert limit < largest.max()
    (change,) = clip(model, before, limit)
    assert change[1] == largest.argmax()
    after = measured(model)
    np.testing.assert_allclose(after["largest_logit"], np.minimum(largest, limit), rtol=1e-5)
    other = slice(2 * (1 - clipped), 2 * (1 - clipped) + 2)
    assert before[other].equals(after[other])
    mate = before["head"].eq(2 * clipped + 1 - change[1] % 2)  # with the same keys
    assert after["entropy"][mate].item() == pytest.approx(before["entropy"][mate].item(), rel=1e-5)


def cosines():
    config = Config(width=WIDTH, depth=1, head_size=8, sequence=LENGTH, cosine=True, alpha=9.0)
    return One(Transformer(config), lambda m: m(TOKENS))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: of_transformers("Qwen3"),
            "attention.layers.0.self_attn normalises its queries",
        ),
        (cosines, "attention.blocks.0.attention normalises its queries and keys"),
        (lambda: packed(named=False), "attention is a XCA, and which of its"),
        (
            lambda: of_transformers("GPTNeoX"),
            "attention.layers.0.attention is a GPTNeoXAttention, and which of its weights",
        ),
    ],
)
def test_where_the_weights_are_not_known_nothing_is_changed(build, message):
    torch.manual_seed(0)
    model = build()
    copy = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="^" + message):
        clip(model, measured(model), 1e-3)
    assert all(map(torch.equal, copy, model.parameters()))


def test_a_monitor_clips_after_a_step_that_it_has_watched():
    model = made("the laboratory").train()
    with Monitor(model, every=2, rows=10**6) as monitor:
        model()
        limit = monitor.tables[0]["largest_logit"].min() / 2.0
        assert len(monitor.clip(limit)) == HEADS
        assert monitor.clip(limit) == []
        model()
        assert monitor.clip(limit) == []
    assert measured(model)["largest_logit"].to_numpy() == pytest.approx(limit, rel=1e-5)
