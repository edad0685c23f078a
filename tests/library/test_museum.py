"""The museum: what is mended is attention by hand, and what is broken is so as its label says.

By hand is one query at a time in NumPy, from the formula and what the label means. The logits of
what is broken are read off its weights, which come out where the values are unit vectors.
"""

import itertools
import math
import re

import numpy as np
import pytest
import torch

from tests.library.museum import EXHIBITS
from tests.library.museum.laws import BLOCK

NAMES = {exhibit.name: exhibit for exhibit in EXHIBITS}
each = pytest.mark.parametrize("exhibit", EXHIBITS, ids=NAMES)


def draw(*shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return torch.from_numpy(rng.standard_normal(shape))


def qk(exhibit, n=20, m=20, size=0.5):
    """Return q and k whose scores are moderate at every scale on show."""
    q = size * draw(2, exhibit.heads, n, exhibit.d)
    return q, size * draw(2, exhibit.key_heads, m, exhibit.d, seed=1)


def close(found, expected, absolute=0.0):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=absolute)


def weights(attention, q, k, **masks):
    """Return the weights, the output for values that are unit vectors."""
    m = k.shape[-2]
    values = torch.eye(m, dtype=q.dtype).expand(*k.shape[:2], m, m)
    return attention(q, k, values, **masks)


def logits(attention, q, k, **masks):
    """Return the logits over that of the first key, which is to be seen."""
    found = weights(attention, q, k, **masks).log()
    return found - found[..., :1]


def logits_meant(exhibit, q, k):
    """Return every expected multiplier times q·k, or the cosine, as an array."""
    q, k = q.numpy(), np.repeat(k.numpy(), q.shape[1] // k.shape[1], axis=1)
    if exhibit.applied_to == "cosine":
        q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    scores = np.einsum("bhid,bhjd->bhij", q, k)
    n, m = scores.shape[-2:]
    if not callable(exhibit.expected):
        return exhibit.expected * scores
    law = [exhibit.expected(m, exhibit.d, m - n + i) for i in range(n)]
    return np.array(law)[:, None] * scores


def by_hand(exhibit, q, k, v, attn_mask=None, is_causal=False):
    """Return the attention that the label means, one query at a time."""
    meant, scores = exhibit.meant, logits_meant(exhibit, q, k)
    n, m = scores.shape[-2:]
    mask = np.zeros((n, m))
    if attn_mask is not None:
        as_added = np.where(attn_mask, 0.0, -np.inf) if attn_mask.dtype == torch.bool else attn_mask
        mask = mask + np.asarray(as_added)
    output = np.zeros((*scores.shape[:-1], v.shape[-1]))
    for b, h, i in itertools.product(*map(range, scores.shape[:-1])):
        place, values = m - n + i, v[b, h * v.shape[1] // scores.shape[1]].numpy()
        total = math.exp(meant["sink"]) if "sink" in meant else 0.0
        for j in range(m):
            later = j > place and (is_causal or meant.get("causal", False))
            if later or j <= place - meant.get("window", math.inf) or mask[i, j] == -np.inf:
                continue
            logit = scores[b, h, i, j]
            if "cap" in meant:
                logit = meant["cap"] * math.tanh(logit / meant["cap"])
            weight = math.exp(logit + mask[i, j])
            total += weight
            output[b, h, i] += weight * meant.get("value factor", 1.0) * values[j]
        output[b, h, i] /= total
    return output


def variants(exhibit):
    """Yield the keywords that an exhibit takes, with the number of queries."""
    yield 20, {}
    yield 3, {}
    if "is_causal" in exhibit.takes:
        yield 20, {"is_causal": True}
        yield 3, {"is_causal": True}
    if "attn_mask" in exhibit.takes:
        added = draw(20, 20, seed=2)
        hides = added > -1.0
        hides[:, 0] = True
        yield 20, {"attn_mask": hides}
        yield 20, {"attn_mask": added.masked_fill(~hides, -torch.inf)}


@each
def test_what_is_mended_is_attention_by_hand(exhibit):
    for n, masks in variants(exhibit):
        q, k = qk(exhibit, n)
        v = draw(2, exhibit.key_heads, 20, 3, seed=3)
        close(exhibit.mended(q, k, v, **masks), by_hand(exhibit, q, k, v, **masks), 1e-12)


# --- in which way what is broken differs, by kind ----------------------------------------------


def multiplied(exhibit):
    """Check that all logits are those of the mended, found over intended times."""
    q, k = qk(exhibit)
    ratio = exhibit.found / exhibit.intended()
    for masks in ({}, {"is_causal": True}):
        broken, mended = (logits(x, q, k, **masks) for x in (exhibit.broken, exhibit.mended))
        seen = torch.isfinite(mended)
        assert torch.equal(seen, torch.isfinite(broken))
        largest = float(mended[seen].abs().max())
        close(broken[seen], ratio * mended[seen], 1e-10 * largest * ratio + 1e-14)


def lawless(exhibit):
    """Check the ratio of the logits row by row: the law is missing."""
    q, k = qk(exhibit, 64, 64)
    broken, mended = logits(exhibit.broken, q, k), logits(exhibit.mended, q, k)
    places = range(exhibit.n)
    ratio = [exhibit.found / exhibit.expected(exhibit.n, exhibit.d, i) for i in places]
    close(broken, mended * torch.tensor(ratio)[:, None], 1e-10)
    assert ratio[0] == pytest.approx(1.0)
    assert ratio[-1] == pytest.approx(exhibit.found / exhibit.intended())
    assert ratio[-1] < 0.9


def by_blocks(exhibit):
    q, k = qk(exhibit)
    scores = logits_meant(exhibit, q, k)
    growth = exhibit.found / exhibit.intended()
    assert growth == pytest.approx(1.0 / math.log(2.0))
    expected = scores * growth ** (np.arange(20) // BLOCK)
    expected -= expected[..., :1]
    close(logits(exhibit.broken, q, k), expected, 1e-11)


def between_chunks(exhibit):
    """Check that the logits of a chunk are all too small by the same, the largest's loss."""
    q, k = qk(exhibit)
    scores = logits_meant(exhibit, q, k)
    lost = 1.0 - exhibit.found / exhibit.intended()
    starts = range(0, 20, BLOCK)
    largest = [scores[..., s : s + BLOCK].max(-1, keepdims=True) for s in starts]
    expected = scores - lost * np.concatenate(largest, -1)[..., np.arange(20) // BLOCK]
    expected -= expected[..., :1]
    close(logits(exhibit.broken, q, k), expected, 1e-11)


def in_half_the_dimension(exhibit):
    q, k = qk(exhibit)
    first, second = (
        (q[..., part] @ k[..., part].mT).numpy()
        for part in (slice(exhibit.d // 2), slice(exhibit.d // 2, None))
    )
    expected = exhibit.intended() * first + exhibit.found * second
    expected -= expected[..., :1]
    close(logits(exhibit.broken, q, k), expected, 1e-11)


def factor_on_the_mask(exhibit):
    q, k = qk(exhibit)
    mask = draw(20, 20, seed=2)
    bare, biased = logits(exhibit.broken, q, k), logits(exhibit.broken, q, k, attn_mask=mask)
    close(bare, logits(exhibit.mended, q, k), 1e-12)
    added = exhibit.found * (mask - mask[:, :1]).expand(biased.shape)
    close(biased - bare, added, 1e-11)


def hidden_at_the_cap(exhibit):
    q, k = qk(exhibit, size=2.0)
    cap = -exhibit.found
    expected = cap * np.tanh(logits_meant(exhibit, q, k) / cap)
    expected[..., np.triu(np.ones((20, 20)), 1) == 1] = exhibit.found
    expected -= expected[..., :1]
    found = logits(exhibit.broken, q, k, is_causal=True)
    close(found, expected, 1e-10)


def uncapped(exhibit):
    q, k = qk(exhibit, size=2.0)
    scores = logits_meant(exhibit, q, k)
    capped = exhibit.right * np.tanh(scores / exhibit.right)
    for attention, expected in ((exhibit.broken, scores), (exhibit.mended, capped)):
        expected = expected - expected[..., :1]
        close(logits(attention, q, k), expected, 1e-10)
    assert np.abs(scores - capped).max() > 1e-2
    assert exhibit.found == math.inf


def keys_seen(exhibit):
    """Check how many keys have weight, for every query; the weights of those are right."""
    cached = "of eight" in exhibit.quantity
    n = 8 if cached else exhibit.n
    q, k = qk(exhibit, n, exhibit.n)
    masks = dict.fromkeys(exhibit.takes, True)
    broken, mended = (weights(x, q, k, **masks) for x in (exhibit.broken, exhibit.mended))
    at = 0 if exhibit.quantity.startswith("keys seen by the first") else -1
    for found, number in ((broken, exhibit.found), (mended, exhibit.intended())):
        assert torch.all(torch.count_nonzero(found[..., at, :], -1) == number)
    both = (broken > 0) & (mended > 0)
    plain = torch.from_numpy(logits_meant(exhibit, q, k)).exp()
    for found in (broken, mended):
        seen = torch.where(found > 0, plain, 0.0)
        close(found, seen / seen.sum(-1, keepdim=True))
    assert torch.any(both)
    assert not torch.equal(broken > 0, mended > 0)


def keys_counted(exhibit):
    q, k = qk(exhibit, 8, exhibit.n)
    mask = torch.zeros(8, exhibit.n, dtype=torch.float64)
    mended = weights(exhibit.mended, q, k, attn_mask=mask)
    total = torch.from_numpy(logits_meant(exhibit, q, k)).exp().sum(-1, keepdim=True)
    more = exhibit.found - exhibit.intended()
    found = weights(exhibit.broken, q, k, attn_mask=mask)
    close(found, mended * total / (total + more))
    close(weights(exhibit.broken, q, k), mended)


def other_heads(exhibit):
    q, k = qk(exhibit)
    heads = range(exhibit.heads)
    for attention, read in (
        (exhibit.broken, [h % exhibit.key_heads for h in heads]),
        (exhibit.mended, [h // (exhibit.heads // exhibit.key_heads) for h in heads]),
    ):
        expected = exhibit.expected * (q @ k[:, read].mT)
        expected -= expected[..., :1].clone()
        close(logits(attention, q, k), expected, 1e-12)
        assert read[1] == (exhibit.found if attention is exhibit.broken else exhibit.right)


def without_a_sink(exhibit):
    q, k = qk(exhibit)
    plain = np.exp(logits_meant(exhibit, q, k))
    for attention, sink in ((exhibit.broken, exhibit.found), (exhibit.mended, exhibit.right)):
        total = plain.sum(-1, keepdims=True) + math.exp(sink)
        close(weights(attention, q, k), plain / total)


def factor_on_the_values(exhibit):
    q, k = qk(exhibit)
    broken, mended = weights(exhibit.broken, q, k), weights(exhibit.mended, q, k)
    ratio = exhibit.intended() / exhibit.found
    close(mended, broken * ratio)
    close(broken.sum(-1), 1.0)


def norm_of_another_key(exhibit):
    q, k = qk(exhibit)
    k = k * torch.arange(1.0, 21.0, dtype=k.dtype)[:, None]
    norms = k.norm(dim=-1)
    cosines = logits_meant(exhibit, q, k)
    power = norms[..., None, :] ** exhibit.found / norms[..., :, None] ** exhibit.found
    expected = cosines * power.numpy()
    expected -= expected[..., :1]
    close(logits(exhibit.broken, q, k), expected, 1e-9)


def dropped(exhibit):
    q, k = qk(exhibit)
    torch.manual_seed(0)
    first, second = (weights(exhibit.broken, q, k) for _ in range(2))
    assert not torch.equal(first, second)
    kept = weights(exhibit.mended, q, k) / (1.0 - exhibit.found)
    close(first[first > 0], kept[first > 0])
    rate = float((first == 0).double().mean())
    assert rate == pytest.approx(exhibit.found, abs=4.0 * math.sqrt(0.09 / first.numel()))


def imprecise(exhibit):
    """Check the rounding of scores that are exact in float64, and what is too large."""
    largest = math.isinf(exhibit.right)
    dtype = torch.float16 if largest else torch.bfloat16
    q, k = ((32 * x).round() / 32 for x in qk(exhibit, size=1.0))
    exact = q @ k.mT
    rounded = exact.to(dtype).double()
    expected = exhibit.expected * (rounded - rounded[..., :1])
    close(logits(exhibit.broken, q, k), expected, 1e-12)
    assert not torch.equal(rounded, exact)
    if largest:
        q, k = torch.full_like(q, 32.0), torch.full_like(k, exhibit.found / 32.0 / exhibit.d)
        assert torch.all(weights(exhibit.broken, q, k) == 1 / 20)
        assert torch.all(torch.isnan(weights(exhibit.broken, 1.01 * q, k)))
        assert weights(exhibit.mended, 1.01 * q, k) == pytest.approx(1 / 20)
    else:
        error = float((rounded / exact - 1.0)[exact != 0].abs().max())
        assert 0.98 * exhibit.found < error <= exhibit.found


KINDS = {
    "multiplier": multiplied,
    "scale twice": multiplied,
    "dimension": multiplied,
    "law in n": lawless,
    "law in key": by_blocks,
    "chunks": between_chunks,
    "part of the dimension": in_half_the_dimension,
    "mask scaled": factor_on_the_mask,
    "mask capped": hidden_at_the_cap,
    "cap": uncapped,
    "window": keys_seen,
    "future seen": keys_seen,
    "mask missing": keys_seen,
    "cache missed": keys_seen,
    "mask off by one": keys_seen,
    "padding counted": keys_counted,
    "grouping": other_heads,
    "sink dropped": without_a_sink,
    "value factor": factor_on_the_values,
    "cosine": norm_of_another_key,
    "dropout": dropped,
    "precision": imprecise,
}


@each
def test_what_is_broken_is_so_as_its_label_says(exhibit):
    KINDS[exhibit.kind](exhibit)


# --- the labels --------------------------------------------------------------------------------


def test_the_labels_are_whole():
    assert len(EXHIBITS) >= 15
    assert len(NAMES) == len(EXHIBITS)
    assert len({exhibit.link for exhibit in EXHIBITS}) == len(EXHIBITS)
    assert {exhibit.kind for exhibit in EXHIBITS} == set(KINDS)
    for exhibit in EXHIBITS:
        for link in (exhibit.link, *exhibit.also):
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", link)
        assert exhibit.link.rsplit("/", 1)[1] == exhibit.name.rsplit("-", 1)[1]
        assert exhibit.found != exhibit.intended()
        assert set(exhibit.takes) <= {"attn_mask", "is_causal"}


@pytest.mark.parametrize(
    ("name", "number", "printed", "tolerance"),
    [
        ("vllm-48623", lambda e: math.sqrt(e.found / e.expected), 1.2772588722239782, 1e-15),
        ("mobius-548", lambda e: e.expected / e.found, 1.59, 5e-3),
        ("tensorrt-llm-19112", lambda e: e.expected / e.found, 1.87, 5e-3),
        ("atlas-342", lambda e: e.found / e.expected, 1.6314, 5e-5),
        ("sglang-18396", lambda e: e.expected / e.found, 16.0, 1.0),
        ("tt-metal-56789", lambda e: e.found, 0.289, 5e-4),
        ("tt-metal-56789", lambda e: e.expected, 0.125, 0.0),
        ("megatron-bridge-4155", lambda e: e.found / e.right, 1.414, 5e-4),
        ("pytorch-174361", lambda e: 1 / e.expected**2, 1 / 8, 1e-15),
        ("ollama-13893", lambda e: e.found**-2, 576, 1e-9),
        ("ollama-13893", lambda e: e.expected**-2, 256, 1e-9),
    ],
)
def test_a_number_that_a_thread_prints_is_the_one_on_the_label(name, number, printed, tolerance):
    assert number(NAMES[name]) == pytest.approx(printed, abs=tolerance)
