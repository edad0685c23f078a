"""Models of transformers whose scale is another one for good."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from attnlib.attention import register, rescale
from attnlib.policies import own
from experiments.compatibility import FACTOR, LENGTH, by_hand, given, mask, tiny, tokens

pytestmark = pytest.mark.filterwarnings("ignore:the model's own scale")


def test_generation_with_a_cache_of_fixed_length_is_that_without():
    model = tiny("GptOss", register("ssmax"), head=True)
    options = {"input_ids": tokens(), "attention_mask": mask(padded=True), "max_new_tokens": 6}
    options |= {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    cached = model.generate(cache_implementation="static", **options)
    with by_hand(model, "policy"):
        expected = model.generate(use_cache=False, **options)
    assert torch.equal(cached.sequences, expected.sequences)
    torch.testing.assert_close(cached.logits, expected.logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["Gemma3Text", "Whisper"])
def test_a_factor_multiplies_the_models_own_scale(family):
    model = tiny(family)
    inputs = given(family, padded=False)
    with torch.no_grad():
        own = model(**inputs)[0]
        with by_hand(model, "factor"):
            expected = model(**inputs)[0]
        assert register(factor=FACTOR) == f"attnlib-times-{FACTOR:g}"
        model.set_attn_implementation(register(factor=FACTOR))
        torch.testing.assert_close(model(**inputs)[0], expected, rtol=1e-3, atol=2e-5)
        name = register(factor="ssmax", train_length=LENGTH)
        assert name == f"attnlib-ssmax-over-that-at-{LENGTH}-keys"
        model.set_attn_implementation(name)
        output = model(**inputs)[0]
        model.set_attn_implementation(
            register(factor=lambda n, d, position: np.log(n) / np.log(12))
        )
        torch.testing.assert_close(model(**inputs)[0], output)
    assert not torch.allclose(own, expected, atol=1e-2)


@pytest.mark.parametrize("law", ["ssmax", "adacos"])
def test_a_factor_does_what_it_does_under_rescale(law):
    model, inputs = tiny("Llama", "sdpa"), given("Llama", padded=True)
    with torch.no_grad():
        with rescale(factor=law, train_length=LENGTH):
            expected = model(**inputs)[0]
        model.set_attn_implementation(register(factor=law, train_length=LENGTH))
        torch.testing.assert_close(model(**inputs)[0], expected)


def test_what_it_does_not_take():
    with pytest.raises(ValueError, match="similar names: ssmax"):
        register("ssmaxx")
    with pytest.raises(TypeError, match="factor must be a number or a rule"):
        register(factor=torch.ones(3))
    for arguments in ({}, {"policy": "ssmax", "factor": 1.2}):
        with pytest.raises(ValueError, match="a policy or a factor, and not both"):
            register(**arguments)
    with pytest.raises(ValueError, match="train_length is for a factor"):
        register("ssmax", train_length=512)


class Attention(nn.Module):
    """In the same file, which has no eager function."""


class Refusing(transformers.PreTrainedModel):
    """A model that refuses the fused kernel, whose layers `register` finds by its file."""

    _supports_sdpa = False


def test_what_it_cannot_reach_it_refuses():
    q = torch.ones(1, 1, 3, 4)
    function = transformers.AttentionInterface()[register("ssmax")]
    learns = pytest.warns(UserWarning, match="ssmax learns its scale in training")
    with learns, pytest.raises(RuntimeError, match=r"Attention refuses .* cannot change its scale"):
        function(Attention(), q, q, q)
    with pytest.raises(RuntimeError, match="paged cache"):
        function(Attention(), q, q, q, cache=object())


class TestAsTransformersCallsIt:
    """One function of one layer, against the formula."""

    @pytest.fixture
    def inputs(self):
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(2, 3, n, 4, generator=generator) for n in (5, 5, 5)]

    @staticmethod
    def expected(q, k, v, alpha, shown):
        p = torch.where(shown, alpha * q @ k.mT, -torch.inf).softmax(dim=-1)
        return (p @ v).transpose(1, 2)

    def test_without_a_mask_queries_see_what_is_before_them_and_one_sees_all(self, inputs):
        function = transformers.AttentionInterface()[register("transformer")]
        q, k, v = inputs
        module = nn.Identity()  # it does not say whether it is causal, and no file refuses a kernel
        shown = torch.ones(5, 5, dtype=torch.bool).tril()
        output, _ = function(module, q, k, v)
        torch.testing.assert_close(output, self.expected(q, k, v, 0.5, shown))
        output, _ = function(module, q[:, :, :1], k, v)
        torch.testing.assert_close(output, self.expected(q[:, :, :1], k, v, 0.5, shown[-1:]))
        output, _ = function(module, q, k, v, is_causal=False)
        torch.testing.assert_close(output, self.expected(q, k, v, 0.5, shown[-1:]))

    def test_cosines_are_those_of_each_query_with_each_key(self, inputs):
        def seven(n, d, position):
            return 7.0

        assert register(seven) == "attnlib-seven"  # a function is a policy
        policy = dataclasses.replace(own(seven), applied_to="cosine")
        function = transformers.AttentionInterface()[register(policy)]
        output, _ = function(nn.Identity(), *inputs, is_causal=False)
        q, k, v = inputs
        q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        shown = torch.ones(1, 5, dtype=torch.bool)
        torch.testing.assert_close(output, self.expected(q, k, v, 7.0, shown))
