"""The census: a layer with everything in it is measured right, and rows agree with their files."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from book import census
from experiments.census import watched
from experiments.census.__main__ import describe_call

N, HEADS, D = 6, 2, 16
ROOT, LOG = math.sqrt, math.log


class OddAttention(nn.Module):
    """Normalises q, not k; multiplies by 3/d; with a cap, a sink and a gate."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(8, HEADS * D) for _ in range(5))
        self.sinks = nn.Parameter(torch.zeros(HEADS, 1, 1))

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (HEADS, D)).transpose(0, 1) for part in (self.q, self.k, self.v)
        )
        scores = functional.rms_norm(q, (D,)) @ k.mT * (3 / D)
        scores = 20 * torch.tanh(scores / 20)
        scores = torch.cat([scores, self.sinks.expand(-1, len(x), 1)], -1)
        mixed = (scores.softmax(-1)[..., :-1] @ v).transpose(0, 1).flatten(1)
        return self.o(nn.functional.pad(mixed * self.g(x).sigmoid(), (0, 8 - HEADS * D)))


def test_a_layer_with_everything_in_it_is_measured():
    layer = OddAttention()
    calls, other = (
        watched.measure(layer, lambda: layer(torch.zeros(N, 8)), which) for which in (False, True)
    )
    [(place, what)] = calls.items()
    row = describe_call(what, {"other": other[place]})
    assert row["norm"] == ["head", "no"]
    assert row["alpha"] == pytest.approx(3 / ROOT(D), rel=2e-3)
    assert (row["d"], row["v"], row["cap"]) == (D, D, 20.0)
    assert (row["sink"], row["gate"], row["parameters"]) == (True, True, ["sinks"])


SPOTS = {  # by hand, from the files of transformers 5.23.0
    "gpt_neo": {ROOT(128)},
    "t5": {8.0},
    "gemma4": {16.0, ROOT(512)},
    "muse_glimmer": {3.87},
    "muse_spark": {5.473},
    "cvt": {1.0, ROOT(1 / 3), ROOT(1 / 6)},  # heads of 64 in widths of 64, 192 and 384
    "zamba2": {ROOT(2)},
    "deberta_v2": {1.0},
    "timesfm": {LOG(1 + math.e) / LOG(2)},
    "longcat_flash": {ROOT(6144 / 1536)},
    "granite": {ROOT(128)},  # attention_multiplier is 1 by default
    "dia": {ROOT(128)},
    "xlnet": {ROOT(2)},  # two products, both over √d
    "swinv2": {10 / ROOT(32)},  # the cosine times exp(log 10)
    "gpt_oss": {(LOG(32) / 10 + 1) ** 2},
    "openai_privacy_filter": {(LOG(32) / 10 + 1) ** 2},  # d^-¼ on each side, and YaRN
    "granite_docling": {1 / ROOT(64)},  # attention_multiplier is 1/64
    "inkling": {1 / ROOT(128)},
}


@pytest.mark.parametrize("family", SPOTS)
def test_a_row_is_what_its_file_says(family):
    alphas = [row["alpha"] for row in census.rows() if row["family"] == family]
    for wanted in SPOTS[family]:
        assert any(alpha == pytest.approx(wanted, rel=1e-3) for alpha in alphas)
