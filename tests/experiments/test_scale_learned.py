"""One head on its way to its scale: theory against other roads to it, and the record."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from attnlib import retrieval
from attnlib.retrieval import Tilted
from attnlib.scores import Cosine
from experiments import one_head, records
from experiments.judges import scale_learned
from experiments.judges.scale_learned import KEYS, STRENGTH, WIDTH, gamma, mean_loss, model_alpha
from experiments.lab.model import Config
from experiments.lab.tasks import Task
from experiments.lab.train_task import batch_loss, draw_batches

CONFIG = Config(width=8, head_size=8, sequence=16)


def small(**settings):
    fields = {"strength": 0.8, "optimizer": "sgd", "decay": "none", "batch": 8}
    return Task(**{**fields, **settings})


def test_the_scale_gradient_is_the_derivative_by_a_factor_on_either_matrix():
    head = one_head.initial_head(CONFIG, 3, factor=2.0).double()
    batch = [
        x.double() if x.is_floating_point() else x for x in next(draw_batches(CONFIG, small()))
    ]
    batch_loss(head, batch).backward()
    state = one_head.state(head)

    def loss(log_t, name):
        with torch.no_grad():
            matrix = getattr(head, name)
            before = matrix.clone()
            matrix.mul_(np.exp(log_t))
            value = float(batch_loss(head, batch))
            matrix.copy_(before)
        return value

    for name in ("query", "key"):
        slope = (loss(1e-4, name) - loss(-1e-4, name)) / 2e-4
        assert state["slope"] == pytest.approx(slope, rel=1e-6)
        assert state["slope_of_keys"] == pytest.approx(slope, rel=1e-6)
    assert state["query"] == pytest.approx(float((head.query.detach() ** 2).sum()))


def test_small_logits_are_pulled_at_the_rate_gamma():
    """Many fresh rows of a head with tiny logits: its gradient is −γ times the other matrix."""
    config = Config(width=WIDTH, head_size=WIDTH, sequence=KEYS)
    head = one_head.initial_head(config, 0, factor=1e-6)
    task = Task(strength=STRENGTH, batch=1024)
    batch_loss(head, next(draw_batches(config, task))).backward()
    query, key = head.query.detach(), head.key.detach()
    for matrix, other in ((head.query, key), (head.key, query)):
        pull = float(-(matrix.grad * other).sum() / other.square().sum())
        assert pull == pytest.approx(gamma(), rel=0.02)


def test_the_model_grows_exponentially_and_settles_at_the_rate_of_the_curvature():
    tau = np.linspace(0.0, 20.0, 21)
    early = model_alpha(tau, 1e-6)
    np.testing.assert_allclose(early, 1e-6 * np.exp(2.0 * gamma() * tau), rtol=1e-4)
    theta = scale_learned.tilt(STRENGTH, WIDTH)
    late = model_alpha(np.array([0.0, 30.0, 40.0, 50.0]), 0.999 * theta)
    rates = -np.diff(np.log(theta - late[1:])) / 10.0
    curvature = float(mean_loss().derivative(2)(theta))
    assert rates == pytest.approx(2.0 / np.sqrt(WIDTH) * theta * curvature, rel=0.01)


def test_the_curve_is_the_mean_loss_between_its_points():
    theta = scale_learned.tilt(STRENGTH, WIDTH)
    alpha = theta * np.array([0.01, 0.287, 0.999])
    exact = retrieval.loss(Cosine(WIDTH), Tilted(theta), alpha, KEYS)
    np.testing.assert_allclose(mean_loss()(alpha), exact, rtol=1e-5)


def test_at_rest_loss_and_penalty_are_least():
    curve = mean_loss(16, 0.7)
    for decay in one_head.L2[:-1]:
        least = minimize_scalar(
            lambda alpha, decay=decay: float(curve(alpha)) + decay * 4.0 * alpha,
            bounds=(0.0, 25.0), options={"xatol": 1e-8},
        )  # fmt: skip
        assert scale_learned.alpha_at_rest(decay) == pytest.approx(least.x, rel=1e-4)
    assert scale_learned.alpha_at_rest(0.3) == 0.0
    critical = gamma(16, 0.7)
    rests = [scale_learned.alpha_at_rest(critical * share) for share in (0.99, 1.01)]
    assert rests[0] > 0.0 == rests[1]


def test_the_record_is_complete_and_begins_as_here(monkeypatch):
    record = records.load("one_head")
    assert [entry.key for entry in record.entries] == [
        at for at, _ in one_head.entries_to_compute()
    ]
    monkeypatch.setattr(one_head, "STEPS", {"sgd": 8, "adam": 8})
    for optimizer in one_head.STEPS:
        at = {"optimizer": optimizer, "aligned": False, "factor": 2.0**-4, "seed": 1}
        recorded, here = record.find(**at), one_head.train_way(**at)
        for name, values in here.items():
            np.testing.assert_allclose(values, recorded[name][:3], rtol=1e-3, atol=1e-6)
