"""The known bugs: what is fixed is attention by hand, what is broken is found, and what it costs.

By hand is one query at a time in NumPy, from the formula and what the label means.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from attnlib.auditing import CODES
from experiments.known_bugs import BUGS, __main__, audits, unseen
from experiments.known_bugs.bugs import LABELS
from experiments.lab import fields
from experiments.lab.model import Transformer
from experiments.probe_training import CONFIG
from experiments.records import load

NAMES = {bug.name: bug for bug in BUGS}
each = pytest.mark.parametrize("bug", NAMES.values(), ids=NAMES)


def draw(*shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return torch.from_numpy(rng.standard_normal(shape))


def by_hand(bug, q, k, v, attn_mask=None, is_causal=False, *, scale=None, **properties):
    """Return the attention that is meant, one query at a time."""
    q, k, v = (x.numpy() for x in (q, k, v))
    mask = np.zeros((q.shape[2], k.shape[2]))
    if attn_mask is not None:
        added = np.where(attn_mask, 0.0, -np.inf) if attn_mask.dtype == torch.bool else attn_mask
        mask = mask + np.asarray(added)
    output = np.zeros((*q.shape[:-1], v.shape[-1]))
    for b, h, i in itertools.product(*map(range, q.shape[:-1])):
        place, head = len(mask[0]) - len(mask) + i, h * k.shape[1] // q.shape[1]
        multiplier = bug.expected if scale is None else scale
        if callable(multiplier):
            multiplier = multiplier(len(mask[0]), bug.d, place)
        total = math.exp(properties["sink"]) if "sink" in properties else 0.0
        for j in range(k.shape[2]):
            later = j > place and (is_causal or "window" in properties)
            if later or j <= place - properties.get("window", math.inf) or mask[i, j] == -np.inf:
                continue
            logit = multiplier * (q[b, h, i] @ k[b, head, j])
            if properties.get("cosine"):
                logit /= np.linalg.norm(q[b, h, i]) * np.linalg.norm(k[b, head, j])
            if math.isfinite(properties.get("cap", math.inf)):
                logit = properties["cap"] * math.tanh(logit / properties["cap"])
            weight = math.exp(logit + mask[i, j])
            total += weight
            output[b, h, i] += weight * properties.get("values", 1.0) * v[b, head, j]
        output[b, h, i] /= total
    return output


def inputs(bug, queries):
    q = 0.5 * draw(2, bug.heads, queries, bug.d)
    k = 0.5 * draw(2, bug.key_heads, 20, bug.d, seed=1)
    return q, k, draw(2, bug.key_heads, 20, 3, seed=3)


@each
def test_what_is_fixed_is_attention_by_hand(bug):
    masks = [(20, {}), (3, {})]
    if "window" not in bug.meant:
        added = draw(20, 20, seed=2)
        hides = added > -1.0
        hides[:, 0] = True
        masks += [(3, {"is_causal": True}), (20, {"attn_mask": hides})]
        masks += [(20, {"attn_mask": added.masked_fill(~hides, -torch.inf)})]
    for queries, mask in masks:
        qkv = inputs(bug, queries)
        expected = by_hand(bug, *qkv, **mask, **bug.meant)
        np.testing.assert_allclose(bug.fixed(*qkv, **mask), expected, rtol=1e-10, atol=1e-12)


NUMBERS = {"scale", "mask", "values"}
"""Findings that tell the number that is wrong."""


FIRST = {bug.kind: bug.name for bug in reversed(BUGS)}.values()
"""One bug of each kind; the others are audited in make test-all."""


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=name, marks=[] if name in FIRST else pytest.mark.slow)
        for name, bug in NAMES.items()
    ],
)
def test_every_fault_is_found_with_its_reason_and_number_and_what_is_fixed_passes(bug):
    torch.manual_seed(0)
    report = audits.audit_bug(bug, bug.broken)
    findings = {finding.code: finding for finding in report.findings}
    assert set(findings) <= set(CODES)
    code = audits.CODE[bug.kind]
    assert code in findings, report
    if code in NUMBERS and bug.found:
        words = findings[code].found.removeprefix("added ").split()
        assert float(words[0]) == pytest.approx(bug.found, rel=0.01)
    if bug.kind not in audits.KINDS["scale"]:  # those are plain attention
        fixed = audits.audit_bug(bug, bug.fixed)
        assert fixed.passed, fixed


# --- the record -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded():
    return load("known_bugs")


def bugs(recorded):
    return {e.key["bug"]: e.result for e in recorded.entries if "bug" in e.key}


def test_the_record_is_of_the_known_bugs_of_today(recorded):
    for name, today in (("config", audits.CONFIG), ("training", audits.TRAINING)):
        known = recorded.settings[name].items()  # and what no run could choose any more
        kept = {key: value for key, value in known if key in fields.field_names(type(today))}
        assert type(today)(**kept) == today
    assert tuple(recorded.settings["ratios"]) == __main__.RATIOS
    assert list(bugs(recorded)) == [bug.name for bug in BUGS]
    for name, result in bugs(recorded).items():
        label = {part: result[part] for part in ("link", "kind", "what", "quantity")}
        assert label == NAMES[name].label
        assert result["intended"] == f"{NAMES[name].right:.4g}"
        assert result["audit"]["code"] == audits.CODE[result["kind"]]
    planned = [at for at, _ in __main__.entries_to_compute(None)]
    assert planned == [entry.key for entry in recorded.entries]


def test_nothing_was_found_where_nothing_is_wrong(recorded):
    counts = [entry.result for entry in recorded.entries if "alarms" in entry.key]
    assert sum(count["audits"] for count in counts) > 100
    assert sum(count["alarms"] for count in counts) == 0


def test_what_is_recorded_of_unseen_reports_is_of_the_list_and_the_first_trial_stays():
    first, now = load("known_bugs.unseen_first"), load("known_bugs.unseen")
    for record in (first, now):
        assert [e.key["report"] for e in record.entries if "report" in e.key] == list(unseen.LABELS)
        assert record.settings["reports"] == unseen.LABELS
    assert [sum(entry.result[part] for entry in first.entries) for part in ("found", "named")] == [
        10,
        7,
    ]
    known = {label[part] for label in LABELS.values() for part in label if part == "link"}
    assert not known & {label["link"] for label in unseen.LABELS.values()}


@pytest.mark.parametrize(
    "name",
    [
        entry.key["report"]
        for entry in load("known_bugs.unseen_first").entries
        if not entry.result["named"]
    ],
)
def test_a_report_that_was_missed_is_found_as_recorded_and_the_right_version_passes(name):
    answer, recorded = unseen.audit_report(name), load("known_bugs.unseen").find(report=name)
    assert {**answer, "said": None} == {**recorded, "said": None}
    assert answer["found"]
    assert not answer["alarms"]


def test_a_fault_in_the_attention_of_a_model_costs_something():
    untrained = object.__new__(audits.Trained)
    untrained.model = Transformer(CONFIG, 0)
    untrained.inputs, untrained.targets = torch.randint(256, (2, 3, CONFIG.sequence))
    untrained.right = untrained.losses()
    found = untrained.fault_cost(NAMES["keras-23038"])  # it sees keys of the future
    assert found["met"] == "as it is"
    assert found["cost"] != 0.0
