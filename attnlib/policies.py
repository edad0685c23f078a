"""Attention scales in use: for each its formula, its source, and its value at your n, d, position.

`POLICIES` holds them by name, in three families:

- dimension: a function of the head dimension d alone;
- normalised: for unit vectors, whose dot product is a cosine;
- length: a function of the number of keys n or of the query's position.

They are comparable through `Policy.alpha`, the standard deviation that the logits have when the
entries of q and k have variance 1 (or when the cosine is that of random directions): the α of the
book. Chapter: policies.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlib import checking, rules
from attnlib.checking import FloatArray
from attnlib.extras import brought_by
from attnlib.rules import Case

if TYPE_CHECKING:
    import pandas as pd
Rule = Callable[..., Any]
"""From a `Case` and the constants by name to the scale: a number, or an array of the same shape."""


class Constant(NamedTuple):
    """A number in a formula that users of the policy choose, finite and at least `minimum`."""

    name: str
    value: float
    meaning: str
    minimum: float = 0.0


@dataclass(frozen=True)
class Policy:
    """A rule for the scale. The ones in use are in `POLICIES`.

    - `name`, `title`: its key in `POLICIES`, and how a text calls it;
    - `family`: "dimension", "normalised" or "length";
    - `applied_to`: what the scale multiplies, "dot product" or "cosine";
    - `formula`: the scale in LaTeX, with n keys, dimension d, position i = 0, 1, …;
    - `source`: a key of the book's bibliography, or a URL;
    - `read`: where its formula was read;
    - `meaning`: one sentence;
    - `settings`: the constants of the formula, each with what it means;
    - `learned`: whether training changes the scale; here it is at its initial value;
    - `unread`: what could not be read at its source. Empty for nearly all.

    Chapter: policies.

    >>> yarn = POLICIES["yarn"]
    >>> yarn.constants
    {'coefficient': 0.1, 'train_length': 4096.0}
    >>> float(yarn.scale(n=131072, d=128) * np.sqrt(128))  # (0.1 log 32 + 1)²
    1.8132...
    """

    name: str
    title: str
    family: Literal["dimension", "normalised", "length"]
    applied_to: Literal["dot product", "cosine"]
    formula: str
    source: str
    read: str
    meaning: str
    rule: Rule = field(repr=False)
    settings: tuple[Constant, ...] = ()
    learned: bool = False
    unread: str = ""

    @property
    def constants(self) -> dict[str, float]:
        """The constants of the formula by name."""
        return {setting.name: setting.value for setting in self.settings}

    @property
    def verified(self) -> bool:
        """Whether all of it was read at its source."""
        return not self.unread

    def with_constants(self, **constants: float) -> "Policy":
        """Return the policy with other values for some of its constants.

        Raises ValueError for a name that is none of them, ValueError or TypeError for a value that
        is not a number, not finite, or below what the constant allows.

        >>> POLICIES["qwen"].with_constants(train_length=8192).constants
        {'train_length': 8192.0}
        """
        for name in constants:
            if name not in self.constants:
                allowed = ", ".join(self.constants) or "none"
                raise ValueError(f"the constants of {self.name} are: {allowed}; got {name!r:.80}")
        settings = [
            setting._replace(value=_constant(setting, constants[setting.name]))
            if setting.name in constants
            else setting
            for setting in self.settings
        ]
        return replace(self, settings=tuple(settings))

    def scale(self, n: ArrayLike, d: ArrayLike, position: ArrayLike | None = None) -> FloatArray:
        """Return what multiplies q·k, or cos(q, k), broadcasting over n, d and position.

        n ≥ 1 is the number of keys that the query sees (of classes or candidates, where the policy
        comes from a loss), d ≥ 1 the dimension of q and k, position ≥ 0 that of the query, by
        default the last, n − 1. Few policies depend on the position; the others check it and leave
        it at that. Exact to rounding, for `gradient` and `gradient_cosine` as exact as
        `annealed.best_alpha`. Infinite where it exceeds the largest float.

        Raises ValueError or TypeError for n or d below 1, a negative position, NaN, infinity and
        what is not a number, for shapes that do not broadcast, and `gradient_cosine` for a d that
        is not a whole number from 3 on.

        >>> float(POLICIES["transformer"].scale(n=4096, d=64))
        0.125
        >>> POLICIES["llama_4"].scale(n=16384, d=64, position=[0, 8191, 16383]) * 8
        array([1.        , 1.0693..., 1.1098...])
        """
        keys = checking.keys(n)
        dimension = checking.finite("d", d, minimum=1.0)
        if position is None:
            keys, dimension = checking.broadcast(n=keys, d=dimension)
            place = keys - 1.0
        else:
            place = checking.finite("position", position, minimum=0.0)
            keys, dimension, place = checking.broadcast(n=keys, d=dimension, position=place)
        with np.errstate(over="ignore"):
            scale = self.rule(Case(keys, dimension, place), **self.constants)
        return np.array(np.broadcast_to(scale, keys.shape), dtype=np.float64)

    def alpha(self, n: ArrayLike, d: ArrayLike, position: ArrayLike | None = None) -> FloatArray:
        """Return the effective α, the standard deviation of a logit: scale·√d or scale/√d.

        The first for dot products of q and k whose entries have mean 0 and variance 1, so that q·k
        has variance d; the second for cosines of random directions, whose variance is 1/d. So the
        Transformer has α = 1 in every dimension. Arguments and errors as `scale`. Chapter:
        policies.

        >>> float(POLICIES["mup"].alpha(n=4096, d=256)), float(POLICIES["swin_v2"].alpha(64, 100))
        (0.5, 1.0)
        """
        scale = self.scale(n, d, position)
        root = np.sqrt(np.asarray(d, dtype=np.float64))
        with np.errstate(over="ignore"):
            return np.asarray(scale / root if self.applied_to == "cosine" else scale * root)

    def relative(self, train_length: float) -> "Policy":
        """Return the policy whose scale is this one's at n keys over this one's at `train_length`.

        1 at `train_length`: what multiplies the scale that a model was trained with. Raises
        ValueError or TypeError for a length below 1 or where this scale is 0. Chapter: policies.

        >>> POLICIES["ssmax"].relative(1024).scale(n=[32, 1024, 1048576], d=64)
        array([0.5, 1. , 2. ])
        """
        length = checking.number("train_length", train_length)
        checking.finite("train_length", length, minimum=1.0)
        return replace(
            self,
            name=f"{self.name} over that at {length:g} keys",
            family="length",
            rule=_Relative(self.rule, length),
        )


@dataclass(frozen=True)
class _Relative:
    """A rule over what it is at a length."""

    rule: Rule
    length: float

    def __call__(self, case: Case, **constants: float) -> Any:
        there = Case(np.asarray(self.length), case.d, np.asarray(self.length - 1.0))
        unit = self.rule(there, **constants)
        if not np.all(np.asarray(unit) > 0.0):
            raise ValueError(
                f"train_length must be one at which the scale is positive, "
                f"got train_length={self.length:g}"
            )
        return self.rule(case, **constants) / unit


@dataclass(frozen=True)
class _Own:
    """A function of n, d and the position as a rule."""

    function: Callable[..., ArrayLike]

    def __call__(self, case: Case) -> Any:
        return checking.finite("the policy's scale", self.function(*case), minimum=0.0)


def own(
    function: Callable[..., ArrayLike],
    applied_to: Literal["dot product", "cosine"] = "dot product",
) -> Policy:
    """Return a rule of one's own as a policy, for all that takes one.

    `function(n, d, position)` gets arrays of one shape, the number of keys that a query sees, the
    dimension and the query's position from 0, and returns what multiplies q·k (or the cosine): a
    number, or an array of that shape, from 0 on. What it returns otherwise is a ValueError or
    TypeError where it is used. TypeError for what cannot be called. Chapter: policies.

    >>> mine = own(lambda n, d, position: np.log(n) / np.sqrt(d))
    >>> attended = mine.alpha(n=[2, 8], d=64)
    >>> attended / np.log(2)
    array([1., 3.])
    """
    if not callable(function):
        raise TypeError(f"function must be one of n, d and position, got {function!r:.80}")
    checking.choice("applied_to", applied_to, ("dot product", "cosine"))
    name = getattr(function, "__name__", type(function).__name__)
    return Policy(
        name=name,
        title=name,
        family="length",
        applied_to=applied_to,
        formula=name,
        source="",
        read="",
        meaning="a rule of one's own",
        rule=_Own(function),
    )


def table(n: ArrayLike, d: ArrayLike) -> "pd.DataFrame":
    """Return a pandas DataFrame of all policies for one n and d, a row each, in their order.

    Columns: name, applied to, formula, scale, alpha, learned, source. Policies that depend on the
    position are at the last, n − 1. Needs the extra `table`. Raises ValueError or TypeError where
    `Policy.scale` does, and where n or d is not a single number. Chapter: policies.

    >>> table(n=4096, d=128).set_index("name").loc["transformer", ["scale", "alpha"]].tolist()
    [0.08838..., 1.0]
    """
    with brought_by("table"):
        import pandas as pd  # takes longer to load than all of attnlib

    keys, dimension = checking.number("n", n), checking.number("d", d)
    rows = [
        {
            "name": policy.name,
            "applied to": policy.applied_to,
            "formula": policy.formula,
            "scale": float(policy.scale(keys, dimension)),
            "alpha": float(policy.alpha(keys, dimension)),
            "learned": policy.learned,
            "source": policy.source,
        }
        for policy in POLICIES.values()
    ]
    return pd.DataFrame(rows)


def _constant(setting: Constant, value: Any) -> float:
    number = checking.number(setting.name, value)
    return float(checking.finite(setting.name, number, minimum=setting.minimum))


# --- the catalogue --------------------------------------------------------------------------------

_TRAIN_LENGTH = "length of the contexts in training"

_BY_DIMENSION = (
    Policy(
        name="transformer",
        title="Transformer",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{d}}",
        source="vaswani2017attention",
        read="documentation of PyTorch's scaled_dot_product_attention: scale=None means 1/√d",
        meaning="Gives logits of variance 1 when the entries of q and k have variance 1.",
        rule=rules.inverse_root,
    ),
    Policy(
        name="t5",
        title="T5",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{d}}",
        source="raffel2020exploring",
        read="tensorflow/mesh, mesh_tensorflow/transformer/attention.py",
        meaning="No scale at run time: the matrix of the queries starts 1/√d smaller instead.",
        rule=rules.inverse_root,
        learned=True,
    ),
    Policy(
        name="mup",
        title="μP",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{m}{d}",
        source="https://arxiv.org/abs/2203.03466",
        read="microsoft/mup, README.md and examples/Transformer/model.py",
        meaning="Keeps logits in bounds, as d grows, once training has aligned q and k.",
        rule=rules.over_dimension,
        settings=(Constant("multiplier", 8.0, "m; 8 makes it 1/√d at d = 64"),),
    ),
    Policy(
        name="u_mup",
        title="u-μP, unit scaling",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{m}{d}",
        source="blake2024ump",
        read="graphcore-research/unit-scaling, unit_scaling/functional.py",
        meaning="As μP; the output is also divided by a fitted model of its standard deviation.",
        rule=rules.over_dimension,
        settings=(Constant("multiplier", 1.0, "m, to be tuned"),),
    ),
    Policy(
        name="almost_scaled",
        title="almost-scaled attention",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{d}}",
        source="orr2023almost",
        read="the source, 002",
        meaning="The Transformer's scale; the output is also multiplied by (n/e)^½.",
        rule=rules.inverse_root,
    ),
    Policy(
        name="granite",
        title="Granite",
        family="dimension",
        applied_to="dot product",
        formula="m",
        source="https://github.com/huggingface/transformers/blob/main/src/transformers/models/"
        "granite/configuration_granite.py",
        read="huggingface/transformers, models/granite/configuration_granite.py",
        meaning="A constant of the model's configuration, called attention_multiplier.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 1.0 / 128.0, "m, whatever the dimension"),),
        unread="The file has the constant, with default 1. The values of released models, 1/64 and "
        "1/128, were seen in copies of their configurations.",
    ),
    Policy(
        name="cerebras_gpt",
        title="Cerebras-GPT",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{m}{d}",
        source="https://arxiv.org/abs/2304.03208",
        read="Cerebras/modelzoo, layers/AttentionLayer.py",
        meaning="As μP, with a multiplier to be tuned.",
        rule=rules.over_dimension,
        settings=(Constant("multiplier", 1.0, "m, to be tuned"),),
    ),
    Policy(
        name="gemma_2",
        title="Gemma 2, 27B",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{m}}",
        source="https://github.com/google/gemma_pytorch",
        read="google/gemma_pytorch, gemma/config.py",
        meaning="The root of model width over heads instead of d = 128; then 50 tanh(x/50).",
        rule=rules.fixed_root,
        settings=(Constant("scalar", 144.0, "m; in the smaller models the head dimension", 1.0),),
    ),
    Policy(
        name="gemma_3",
        title="Gemma 3, 27B",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{m}}",
        source="https://github.com/google/gemma_pytorch",
        read="google/gemma_pytorch, gemma/config.py",
        meaning="The root of model width over heads instead of d = 128.",
        rule=rules.fixed_root,
        settings=(Constant("scalar", 168.0, "m; in the smaller models the head dimension", 1.0),),
    ),
    Policy(
        name="grok_1",
        title="Grok-1",
        family="dimension",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{m}}",
        source="https://github.com/xai-org/grok-1",
        read="xai-org/grok-1, model.py and run.py",
        meaning="The Transformer's scale at the model's head dimension; then 30 tanh(x/30).",
        rule=rules.fixed_root,
        settings=(Constant("scalar", 128.0, "m, the head dimension of the model", 1.0),),
    ),
)

_NORMALISED = (
    Policy(
        name="qknorm",
        title="QKNorm",
        family="normalised",
        applied_to="cosine",
        formula=r"\log_2(n^2 - n)",
        source="henry2020qknorm",
        read="CyndxAI/QKNorm, QKNorm/layers.py",
        meaning="Learned; starts at log₂ of the number of pairs in a long training text, n tokens.",
        rule=rules.pairs,
        learned=True,
    ),
    Policy(
        name="swin_v2",
        title="Swin V2",
        family="normalised",
        applied_to="cosine",
        formula=r"\min(e^\ell, 100), \quad e^\ell = 10",
        source="liu2022swinv2",
        read="microsoft/Swin-Transformer, models/swin_transformer_v2.py",
        meaning="Learned by each head through its logarithm, and kept below 100.",
        rule=rules.clipped,
        settings=(
            Constant("initial", 10.0, "where training starts"),
            Constant("largest", 100.0, "where it is clipped"),
        ),
        learned=True,
    ),
    Policy(
        name="qk_norm",
        title="QK norm",
        family="normalised",
        applied_to="cosine",
        formula=r"\sqrt{d}",
        source="dehghani2023vit22b",
        read="allenai/OLMo, olmo/model.py",
        meaning="ViT-22B, OLMo 2, Qwen3: q and k of length √d, with learned gains; then 1/√d.",
        rule=rules.root,
        learned=True,
    ),
    Policy(
        name="ngpt",
        title="nGPT",
        family="normalised",
        applied_to="cosine",
        formula=r"\sqrt{d}",
        source="https://arxiv.org/abs/2410.01131",
        read="NVIDIA/ngpt, model.py",
        meaning="√d on unit vectors, with a learned gain for each coordinate.",
        rule=rules.root,
        learned=True,
    ),
    Policy(
        name="x_transformers",
        title="x-transformers",
        family="normalised",
        applied_to="cosine",
        formula="10",
        source="https://github.com/lucidrains/x-transformers",
        read="lucidrains/x-transformers, README.md",
        meaning="A fixed number.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 10.0, "the number"),),
    ),
    Policy(
        name="am_softmax",
        title="AM-Softmax",
        family="normalised",
        applied_to="cosine",
        formula="30",
        source="wang2018amsoftmax",
        read="happynear/AMSoftmax",
        meaning="A loss over n classes; a fixed number.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 30.0, "the number"),),
    ),
    Policy(
        name="cosface",
        title="CosFace",
        family="normalised",
        applied_to="cosine",
        formula="64",
        source="wang2018cosface",
        read="deepinsight/insightface",
        meaning="A loss over n classes; a fixed number, above a bound for the end of training.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 64.0, "the number"),),
    ),
    Policy(
        name="arcface",
        title="ArcFace",
        family="normalised",
        applied_to="cosine",
        formula="64",
        source="https://arxiv.org/abs/1801.07698",
        read="deepinsight/insightface",
        meaning="A loss over n classes; a fixed number.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 64.0, "the number"),),
    ),
    Policy(
        name="adacos",
        title="AdaCos",
        family="normalised",
        applied_to="cosine",
        formula=r"\sqrt{2}\,\log(n - 1)",
        source="zhang2019adacos",
        read="4uiiurz1/pytorch-adacos, metrics.py",
        meaning="A loss over n classes; grows with their logarithm, and may adapt in training.",
        rule=rules.other_classes,
    ),
    Policy(
        name="simcse",
        title="SimCSE",
        family="normalised",
        applied_to="cosine",
        formula="20",
        source="gao2021simcse",
        read="princeton-nlp/SimCSE",
        meaning="A loss over a batch of n sentences; a temperature of 0.05.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 20.0, "the number, one over the temperature"),),
    ),
    Policy(
        name="clip",
        title="CLIP",
        family="normalised",
        applied_to="cosine",
        formula=r"\min(e^t, 100), \quad e^t = \frac{1}{0.07}",
        source="radford2021clip",
        read="openai/CLIP, clip/model.py; the clip at 100 in open_clip",
        meaning="A loss over a batch of n pairs; learned through its logarithm t.",
        rule=rules.clipped,
        settings=(
            Constant("initial", 1.0 / 0.07, "where training starts"),
            Constant("largest", 100.0, "where it is clipped"),
        ),
        learned=True,
    ),
    Policy(
        name="siglip",
        title="SigLIP",
        family="normalised",
        applied_to="cosine",
        formula="10",
        source="https://arxiv.org/abs/2303.15343",
        read="google-research/big_vision",
        meaning="A sigmoid loss over a batch of n pairs; learned, with a learned bias.",
        rule=rules.constant_scale,
        settings=(Constant("scale", 10.0, "where training starts"),),
        learned=True,
    ),
)

_BY_LENGTH = (
    Policy(
        name="chiang_cholak",
        title="Chiang and Cholak",
        family="length",
        applied_to="dot product",
        formula=r"\frac{\log n}{\sqrt{d}}",
        source="https://arxiv.org/abs/2202.12172",
        read="source su2021entropy, which quotes it; ndnlp/parity, encoder.py",
        meaning="Lets one key win against n others at any length.",
        rule=rules.log_length,
        unread="The code has half of it, ½ log n; the formula is as quoted.",
    ),
    Policy(
        name="entropy_invariance",
        title="entropy invariance",
        family="length",
        applied_to="dot product",
        formula=r"\frac{\log_{m}\max(n, n_0)}{\sqrt{d}}",
        source="su2021entropy",
        read="bojone/bert4keras, bert4keras/backend.py",
        meaning="The Transformer's scale at m keys; grows with log n, meant to hold the entropy.",
        rule=rules.entropy_invariance,
        settings=(
            Constant("reference", 512.0, "m, the length at which it is 1/√d", 2.0),
            Constant("floor", 16.0, "n₀: shorter rows are treated like this one", 1.0),
        ),
    ),
    Policy(
        name="qwen",
        title="Qwen",
        family="length",
        applied_to="dot product",
        formula=r"\frac{\max(1, \log_{L}(i + 1))}{\sqrt{d}}",
        source="bai2023qwen",
        read="a mirror of modeling_qwen.py",
        meaning="Entropy invariance beyond the training length L, at inference only.",
        rule=rules.log_position,
        settings=(Constant("train_length", 2048.0, f"L, {_TRAIN_LENGTH}", 2.0),),
    ),
    Policy(
        name="gradient",
        title="gradient",
        family="length",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{d}}\sqrt{W(n\sqrt{e}/2) - \frac{1}{2}}",
        source="su2023gradient",
        read="the source, 000 and 003",
        meaning="Maximises α(1 − e^{α²}/n), an approximate gradient; W is Lambert's function.",
        rule=rules.best_normal,
    ),
    Policy(
        name="gradient_cosine",
        title="gradient, cosine",
        family="length",
        applied_to="cosine",
        formula=r"\operatorname{argmax}_\alpha \alpha(1 - e^{\kappa(2\alpha) - 2\kappa(\alpha)}/n)",
        source="su2023gradient",
        read="the source, 000 and 003",
        meaning="The same for cosines in d dimensions, with log moment generating function κ.",
        rule=rules.best_cosine,
    ),
    Policy(
        name="ssmax",
        title="Scalable-Softmax",
        family="length",
        applied_to="dot product",
        formula=r"\frac{s\log n}{\sqrt{d}}",
        source="nakanishi2025ssmax",
        read="the paper's first pages",
        meaning="Weights proportional to n^{sz} for logits z; s is learned by each head.",
        rule=rules.learned_log_length,
        settings=(Constant("s", 0.168, "where training starts"),),
        learned=True,
        unread="The initial value 0.168 of s is taken from secondary sources.",
    ),
    Policy(
        name="yarn",
        title="YaRN",
        family="length",
        applied_to="dot product",
        formula=r"\frac{(c\log\max(1, n/L) + 1)^2}{\sqrt{d}}",
        source="peng2024yarn",
        read="jquesnelle/yarn, scaled_rope/LlamaYaRNScaledRotaryEmbedding.py",
        meaning="q and k each get the factor c log(n/L) + 1 when a context L is extended to n.",
        rule=rules.yarn,
        settings=(
            Constant("coefficient", 0.1, "c"),
            Constant("train_length", 4096.0, f"L, {_TRAIN_LENGTH}", 1.0),
        ),
    ),
    Policy(
        name="deepseek_v3",
        title="DeepSeek-V3",
        family="length",
        applied_to="dot product",
        formula=r"\frac{(c\log s + 1)^2}{\sqrt{d}}",
        source="deepseek2024v3",
        read="deepseek-ai/DeepSeek-V3, inference/model.py",
        meaning="YaRN with one extension s for every n; its heads have d = 192.",
        rule=rules.deepseek,
        settings=(
            Constant("coefficient", 0.1, "c, 0.1 times what the model calls mscale"),
            Constant("factor", 40.0, "s, how many times the context was extended", 1.0),
        ),
    ),
    Policy(
        name="longrope",
        title="LongRoPE, Phi-3",
        family="length",
        applied_to="dot product",
        formula=r"\frac{1 + \log_{L}\max(1, n/L)}{\sqrt{d}}",
        source="https://github.com/huggingface/transformers/blob/main/src/transformers/"
        "modeling_rope_utils.py",
        read="huggingface/transformers, modeling_rope_utils.py",
        meaning="q and k each get the root of this factor when a context L is extended to n.",
        rule=rules.longrope,
        settings=(Constant("train_length", 4096.0, f"L, {_TRAIN_LENGTH}", 2.0),),
    ),
    Policy(
        name="llama_4",
        title="Llama 4",
        family="length",
        applied_to="dot product",
        formula=r"\frac{1 + c\log(1 + \lfloor(i + 1)/m\rfloor)}{\sqrt{d}}",
        source="https://github.com/meta-llama/llama-models",
        read="meta-llama/llama-models, models/llama4/model.py",
        meaning="Grows with the logarithm of the number of blocks so far; in layers without RoPE.",
        rule=rules.llama_4,
        settings=(
            Constant("coefficient", 0.1, "c"),
            Constant("floor", 8192.0, "m, the length of a block", 1.0),
        ),
    ),
    Policy(
        name="infoscale",
        title="InfoScale",
        family="length",
        applied_to="dot product",
        formula=r"\frac{1}{\sqrt{d}}\sqrt{\frac{1 - n^{-2/d}}{1 - L^{-2/d}}}",
        source="li2025infoscale",
        read="HT-NEKO/Information-Entropy-Invariance, model/my_gau_alpha_eval/layer.py",
        meaning="Meant to hold the entropy as n grows beyond the training length L.",
        rule=rules.infoscale,
        settings=(Constant("train_length", 512.0, f"L, {_TRAIN_LENGTH}", 2.0),),
    ),
)

POLICIES = MappingProxyType(
    {policy.name: policy for policy in (*_BY_DIMENSION, *_NORMALISED, *_BY_LENGTH)}
)
"""All policies by name: first by dimension, then for normalised q and k, then by length."""
