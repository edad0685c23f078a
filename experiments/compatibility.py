"""Record what attnlib does with the models of transformers, family by family.

    python -m experiments.compatibility

takes some minutes of one core, and goes on where it was stopped. Each family is a small model of
two layers with random weights, from a configuration. Attention is written out here once more, in
float64, and put in the place of the model's own; each tool must give what that gives, or say in a
line why it does not. When all is recorded the page `compatibility` is written.

Predicted before the first run: every cell is right or refused. That prediction failed in three
places, which are mended: a model that writes attention out, made with the name of a policy, lost
its mask in silence (Bloom); one that does so in some of its layers was changed in the others only
(LongT5); and advice to use sdpa was given to models that refuse it (Gemma 2, GPT-OSS, GPT-J).
"""

import logging
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib import provenance
from attnlib.attention import register, rescale
from attnlib.files import replace
from attnlib.policies import POLICIES
from attnlib.probing import probe
from experiments.records import Record, Work, complete, path_of

COMMAND = "python -m experiments.compatibility"
RECORD = path_of("compatibility")
PAGE = Path(__file__).parents[1] / "compatibility.md"
SEED = 0

LENGTH, PADDED, FIRST = 12, 7, 5
"""Tokens of a sequence, how many of the second are padding, and how many are read at first where
there is a cache."""

VOCABULARY = 60

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
BART = {
    f"{side}_{what}": number
    for side in ("encoder", "decoder")
    for what, number in {"layers": 2, "attention_heads": 4, "ffn_dim": 48}.items()
}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4}

DECODERS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 5},
    "Mixtral": {"sliding_window": 5, "num_local_experts": 4},
    "Qwen2": {},
    "Qwen3": {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
    "Gemma2": {"sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    "Gemma3Text": {"sliding_window": 4, "query_pre_attn_scalar": 16},
    "GptOss": {
        "sliding_window": 4,
        "num_local_experts": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
    "DeepseekV3": {
        "q_lora_rank": 16,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "num_key_value_heads": 4,
        "head_dim": 4,
    },
    "Granite": {"attention_multiplier": 0.5},
    "Olmo2": {},
    "Phi3": {},
    "Cohere2": {"sliding_window": 4},
    "Starcoder2": {},
    "SmolLM3": {},
    "GPTNeoX": {},
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "GPT2": {},
    "Falcon": {"head_dim": None},
    "Bloom": GPT,
    "GPTJ": {**GPT, "rotary_dim": 4},
}
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Albert": {"embedding_size": 16},
    "Roberta": {},
    "ModernBert": {"local_attention": 6},
    "DistilBert": {"dim": 32, "hidden_dim": 48, "n_heads": 4, "n_layers": 2},
    "DebertaV2": {},
    "ViT": {"image_size": 12, "patch_size": 4, "num_channels": 1},
}
BOTH: dict[str, dict[str, Any]] = {
    "T5": T5,
    "Bart": {**BART, "d_model": 32, "decoder_start_token_id": 1},
    "Whisper": {
        **BART,
        "d_model": 32,
        "num_mel_bins": 6,
        "max_source_positions": LENGTH,
        "max_target_positions": 64,
        "decoder_start_token_id": 1,
        "init_std": 0.3,
    },
    "LongT5": {**T5, "local_radius": 3},
}
FAMILIES = {**DECODERS, **ENCODERS, **BOTH}
"""What a family's configuration has beside SMALL, or with None lacks of it."""

IN_PART = ("LongT5",)
"""Families that ask transformers' registry for some of their attention only."""

IMPLEMENTATIONS = ("sdpa", "eager", "flex_attention")
SITUATIONS = ("padding", "cache", "generation", "compile", "bfloat16", "checkpointing")
COLUMNS = (*IMPLEMENTATIONS, *SITUATIONS)
TOOLS = ("probe", "rescale", "register")

POLICY, FACTOR = "ssmax", 1.5


# --- the models ----------------------------------------------------------------------------------


def tiny(family: str, attention: str = "eager", *, head: bool = False, **options: Any) -> Any:
    """Return the small model of a family, with its language head where it has one and is to."""
    import transformers

    torch.manual_seed(SEED)
    told = {**SMALL, **FAMILIES[family], **options}
    told = {name: value for name, value in told.items() if value is not None}
    config = getattr(transformers, f"{family}Config")(**told)
    kind = f"{family}Model"
    if head:
        kind = f"{family.removesuffix('Text')}For{'ConditionalGeneration'}"
        if family in DECODERS:
            kind = next(
                name
                for name in (f"{family.removesuffix('Text')}ForCausalLM", f"{family}LMHeadModel")
                if hasattr(transformers, name)
            )
    model = getattr(transformers, kind)._from_config(config, attn_implementation=attention).eval()
    for module in model.modules():  # what is computed twice must be the same
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def tokens(rows: int = 2) -> Tensor:
    """Return sequences of tokens."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return torch.randint(3, VOCABULARY, (rows, LENGTH), generator=generator)


def mask(padded: bool) -> Tensor:
    """Return which tokens are there; the others are on the left."""
    there = torch.ones(2, LENGTH, dtype=torch.long)
    if padded:
        there[1, :PADDED] = 0
    return there


def given(family: str, padded: bool, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return what the family's model is called with."""
    generator = torch.Generator().manual_seed(SEED + 2)
    if family == "ViT":
        return {"pixel_values": torch.randn(2, 1, 12, 12, generator=generator).to(dtype)}
    if family == "Whisper":
        sound = torch.randn(2, 6, 2 * LENGTH, generator=generator).to(dtype)
        return {"input_features": sound, "decoder_input_ids": tokens()}
    inputs = {"input_ids": tokens(), "attention_mask": mask(padded)}
    return {**inputs, "decoder_input_ids": tokens()} if family in BOTH else inputs


# --- by hand -------------------------------------------------------------------------------------

Rule = Callable[[float, Tensor, int], Tensor | float]
"""From the model's own scale, the number of keys of each query and d to the scale."""

RULES: dict[str, Rule] = {
    "own": lambda own, n, d: own,
    "factor": lambda own, n, d: FACTOR * own,
    "policy": lambda own, n, d: torch.from_numpy(POLICIES[POLICY].scale(n.numpy(), d)),
}


class Row(NamedTuple):
    """What is computed of a row of attention by hand."""

    keys: float
    variance: float  # of the logits
    collision_probability: float
    entropy: float
    largest_logit: float
    log_sum_exp: float


class ByHand:
    """Attention written out in float64, as a function of transformers; its calls are kept."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.calls: dict[tuple[nn.Module, int], tuple[Tensor, Tensor, Tensor]] = {}

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **rest: Any,
    ) -> tuple[Tensor, None]:
        """Return the output, (batch, queries, heads, d)."""
        q, k, v = query.double(), key.double(), value.double()
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        visible = torch.ones(*q.shape[:3], k.shape[2], dtype=torch.bool)
        is_causal = rest.get("is_causal")
        if attention_mask is not None:
            visible = visible & attention_mask
        elif getattr(module, "is_causal", True) if is_causal is None else is_causal:
            visible = visible.tril() if q.shape[2] > 1 else visible
        n = visible.sum(-1, keepdim=True)
        own = q.shape[-1] ** -0.5 if scaling is None else scaling
        logits = (q @ k.mT) * self.rule(own, n.clamp(min=1), q.shape[-1])
        if rest.get("softcap"):
            logits = rest["softcap"] * torch.tanh(logits / rest["softcap"])
        if rest.get("position_bias") is not None:
            logits = logits + rest["position_bias"]
        logits = logits.masked_fill(~visible, -torch.inf)
        total = logits.exp().sum(-1, keepdim=True)
        if rest.get("s_aux") is not None:
            total = total + rest["s_aux"].double().exp()[:, None, None]
        weights = logits.exp() / total.clamp(min=1e-300)
        self.keep(module, logits.detach(), weights.detach(), visible)
        return (weights @ v).transpose(1, 2).to(query.dtype), None

    def keep(self, module: nn.Module, logits: Tensor, weights: Tensor, visible: Tensor) -> None:
        """Keep a call of a module."""
        call = 1 + max((one for owner, one in self.calls if owner is module), default=-1)
        self.calls[module, call] = logits, weights, visible

    def rows(self, module: nn.Module, call: int, there: Tensor | None) -> Iterator[tuple[int, Row]]:
        """Yield the head and the rows of a call that see two keys or more, and are tokens."""
        logits, weights, visible = self.calls[module, call]
        for sequence, head, query in np.ndindex(*logits.shape[:3]):
            seen = visible[sequence, head, query]
            padding = there is not None and not there[sequence, query]
            if seen.sum() < 2 or padding:
                continue
            s, p = logits[sequence, head, query][seen], weights[sequence, head, query][seen]
            yield (
                head,
                Row(
                    float(seen.sum()),
                    s.var().item(),
                    p.square().sum().item(),
                    -(p * p.log()).nansum().item(),
                    s.max().item(),
                    s.logsumexp(0).item(),
                ),
            )

    def table(
        self, model: nn.Module, there: Tensor | None
    ) -> dict[tuple[str, int, int], dict[str, float]]:
        """Return columns of the probe's report by layer, call and head."""
        names = {module: name for name, module in model.named_modules()}
        found: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
        for module, call in self.calls:
            of_tokens = None if "decoder." in names[module] else there
            for head, row in self.rows(module, call, of_tokens):
                found[names[module], call, head].append(row)
        lines = {}
        for place, rows in found.items():
            mean = Row(*np.mean(rows, axis=0))
            lines[place] = {
                "rows": float(len(rows)),
                "keys": mean.keys,
                "alpha": mean.variance**0.5,
                "collision_probability": mean.collision_probability,
                "entropy": mean.entropy,
                "largest_logit": max(row.largest_logit for row in rows),
                "log_sum_exp": mean.log_sum_exp,
            }
        return lines


@contextmanager
def by_hand(model: Any, rule: str) -> Iterator[ByHand]:
    """Put attention by hand into the place of the model's own."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    hand, own = ByHand(RULES[rule]), model.config._attn_implementation
    AttentionInterface.register("by-hand", hand)
    AttentionMaskInterface.register("by-hand", sdpa_mask)
    try:
        if asks_the_registry(model):
            model.set_attn_implementation("by-hand")
            yield hand
        else:
            with in_place_of_the_kernel(model, hand):
                yield hand
    finally:
        if asks_the_registry(model):
            model.set_attn_implementation(own)
        del AttentionInterface._global_mapping["by-hand"]
        del AttentionMaskInterface._global_mapping["by-hand"]


def asks_the_registry(model: Any) -> bool:
    """Return whether the model lets its attention be set."""
    return bool(model._can_set_attn_implementation())


@contextmanager
def in_place_of_the_kernel(model: nn.Module, hand: ByHand) -> Iterator[None]:
    """Compute scaled_dot_product_attention by hand, for the module that runs."""
    running: list[nn.Module] = []
    hooks = []
    for name, module in model.named_modules():
        if re.search("attention$", name):
            hooks.append(module.register_forward_pre_hook(lambda one, _: running.append(one)))
    kernel = functional.scaled_dot_product_attention

    def computed(
        q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *_: Any, **rest: Any
    ) -> Tensor:
        visible, bias = attn_mask, None
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            visible, bias = attn_mask > -1e4, attn_mask.clamp(min=-1e4).double()
        given = {"scaling": rest.get("scale"), "is_causal": rest.get("is_causal", False)}
        return hand(running[-1], q, k, v, visible, position_bias=bias, **given)[0].transpose(1, 2)

    functional.scaled_dot_product_attention = computed  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = kernel
        for hook in hooks:
            hook.remove()


# --- what is run ---------------------------------------------------------------------------------


def whole(model: Any, family: str, padded: bool = False) -> Tensor:
    """Return the output of the tokens that are there."""
    output: Tensor = model(**given(family, padded, model.dtype))[0]
    return output[mask(padded).bool()] if padded and family not in BOTH else output


def step_by_step(model: Any, family: str) -> Tensor:
    """Return the same with a cache, token by token after the first few."""
    inputs: dict[str, Any] = given(family, False)
    name = "decoder_input_ids" if family in BOTH else "input_ids"
    ids = inputs.pop(name)
    inputs.pop("attention_mask", None)
    start = model(**inputs, **{name: ids[:, :FIRST]}, use_cache=True)
    cached, outputs = start.past_key_values, [start[0]]
    inputs = {"encoder_outputs": (start.encoder_last_hidden_state,)} if family in BOTH else {}
    for place in range(FIRST, LENGTH):
        step = model(**inputs, **{name: ids[:, place : place + 1]}, past_key_values=cached)
        outputs.append(step[0])
    return torch.cat(outputs, 1)


def generated(model: Any, family: str, use_cache: bool = True) -> Tensor:
    """Return the logits of a text that is continued, with padding where there can be some."""
    inputs = given(family, True)
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1}
    options |= {"output_logits": True, "return_dict_in_generate": True, "use_cache": use_cache}
    found = model.generate(**inputs, **options)
    return torch.stack(found.logits, 1)


def gradients(model: Any, family: str, twice: bool) -> Tensor:
    """Return all gradients, of activations that are computed twice or not."""
    model.train()
    model.zero_grad()
    if twice:
        model.activation_checkpointing_enable()
    try:
        whole(model, family).square().mean().backward()  # type: ignore[no-untyped-call]
    finally:
        model.eval()
        if twice:
            model.activation_checkpointing_disable()
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def compiled(model: Any, family: str) -> Tensor:
    """Return the output of the model as one that is compiled computes it."""
    torch._dynamo.reset()
    return whole(torch.compile(model, backend="aot_eager"), family, there_is(family, "padding"))


Run = Callable[[Any, str], Tensor]

RUNS: dict[str, tuple[Run, Run]] = {
    "plain": (whole, whole),
    "padding": (partial(whole, padded=True),) * 2,
    "cache": (step_by_step, whole),
    "generation": (generated, partial(generated, use_cache=False)),
    "compile": (compiled, lambda model, family: whole(model, family, there_is(family, "padding"))),
    "bfloat16": (whole, whole),
    "checkpointing": (partial(gradients, twice=True), partial(gradients, twice=False)),
}
"""How a situation is run with a tool, and how by hand."""


def there_is(family: str, situation: str) -> bool:
    """Return whether models of the family do that at all."""
    if situation in ("cache", "generation"):
        return family not in ENCODERS
    return situation != "padding" or family not in ("ViT", "Whisper")


# --- what is found -------------------------------------------------------------------------------

TOLERANCE = {"bfloat16": 0.1}
USUAL_TOLERANCE = 2e-3
"""Of the size of the change that the tool makes, and relative, of what the probe finds."""

REFUSED, RIGHT, WRONG, NONE = "refused", "right", "wrong", "not there"


def cell(family: str, implementation: str, situation: str, tool: str) -> dict[str, str]:
    """Return what a tool does with a family in a situation, and the line in which it refuses."""
    if not there_is(family, situation):
        return {"is": NONE}
    said: list[str] = []
    with listening(said), interpreted(implementation):
        try:
            model = made(family, implementation, situation)
            if situation != "compile":  # which takes long
                with in_the_mode(situation):
                    RUNS[situation][0](model, family)
        except Exception as error:  # what fails without a tool, however, is not there
            return {"is": NONE, "line": one_line(error)}
        said.clear()
        try:
            distance = CHECKS[tool](model, family, situation)
        except RuntimeError as error:
            return {"is": REFUSED, "line": one_line(error)}
    if distance <= TOLERANCE.get(situation, USUAL_TOLERANCE):
        return {"is": RIGHT}
    lines = [line for line in said if REFUSALS.search(line)]
    if lines:
        return {"is": REFUSED, "line": lines[0]}
    return {"is": WRONG, "line": f"{distance:.2g} away from what is computed by hand"}


REFUSALS = re.compile("has changed nothing|not measured|their scale stays|does not support setting")
"""In the lines in which the tools, and transformers, say what they do not do."""


def interpreted(implementation: str) -> AbstractContextManager[Any]:
    """Return a context in which flex_attention, which compiles itself for minutes, does not."""
    compiled_otherwise = implementation != "flex_attention"
    return nullcontext() if compiled_otherwise else torch.compiler.set_stance("force_eager")


@cache
def made(family: str, implementation: str, situation: str) -> Any:
    """Return the model for a situation."""
    model = tiny(family, implementation, head=situation == "generation")
    return model.bfloat16() if situation == "bfloat16" else model


def one_line(message: object) -> str:
    """Return a message as a line."""
    return " ".join(str(message).split())


@contextmanager
def listening(said: list[str]) -> Iterator[None]:
    """Note the lines of warnings, and of transformers' log."""
    handler = logging.Handler()
    handler.emit = lambda record: said.append(one_line(record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_, **__: said.append(one_line(message))
            yield
    finally:
        logger.removeHandler(handler)


def expected(model: Any, family: str, situation: str, rule: str) -> tuple[Tensor, ByHand]:
    """Return the output by hand, and the rows of it."""
    with by_hand(model, rule) as hand:
        return RUNS[situation][1](model, family), hand


def apart(found: Tensor, by_hand: Tensor, own: Tensor) -> float:
    """Return how far a result is from that by hand, in units of the change that was wanted."""
    change = (by_hand - own).double().norm().item()
    return (found - by_hand).double().norm().item() / change if change else np.inf


def in_the_mode(situation: str) -> torch.autograd.grad_mode.set_grad_enabled:
    """Return a context with gradients where they are wanted."""
    return torch.set_grad_enabled(situation == "checkpointing")


def texts(family: str, situation: str) -> Tensor | None:
    """Return which tokens there are where some are padding; what is generated is after them."""
    if situation not in ("padding", "compile", "generation") or not there_is(family, "padding"):
        return None
    after = torch.ones(2, SMALL["max_position_embeddings"], dtype=torch.long)
    return torch.cat([mask(True), after], 1)


def probe_is_right(model: Any, family: str, situation: str) -> float:
    """Return how far the report is from the rows by hand, and the output from that without."""
    run = RUNS[situation][0]
    with in_the_mode(situation):
        with probe(model, theory=False) as report:
            watched = run(model, family)
        if not torch.equal(watched, run(model, family)):
            return np.inf
        with by_hand(model, "own") as hand:
            RUNS["plain" if situation in ("cache", "checkpointing") else situation][1](
                model, family
            )
    if situation == "generation":  # the longest text has the rows of its beginnings
        last = dict(hand.calls.keys())
        hand.calls = {(module, 0): hand.calls[module, call] for module, call in last.items()}
    lines = hand.table(model, texts(family, situation))
    table = report.table().set_index(["layer", "call", "head"])
    if set(table.index) != set(lines):
        return np.inf
    return max(
        float(abs(table.loc[place, column] - value) / max(abs(value), 1.0))
        for place, line in lines.items()
        for column, value in line.items()
    )


def rescale_is_right(model: Any, family: str, situation: str) -> float:
    """Return how far the output at another scale is from that by hand."""
    run, distances = RUNS[situation][0], []
    contexts = {"policy": rescale(POLICY)}
    if situation != "compile":  # which takes long
        contexts["factor"] = rescale(factor=FACTOR)
    with in_the_mode(situation):
        own = RUNS[situation][1](model, family)
        for rule, context in contexts.items():
            with context:
                found = run(model, family)
            distances.append(apart(found, expected(model, family, situation, rule)[0], own))
    return max(distances)


def register_is_right(model: Any, family: str, situation: str) -> float:
    """Return how far the output under a registered policy is from that by hand.

    By hand is what the model asks the registry for: it must ask for all of its attention.
    """
    own_name = model.config._attn_implementation
    with in_the_mode(situation):
        own = RUNS[situation][1](model, family)
        wanted = expected(model, family, situation, "policy")[0]
        model.set_attn_implementation(register(POLICY))
        try:
            found = RUNS[situation][0](model, family)
            return np.inf if family in IN_PART else apart(found, wanted, own)
        finally:
            model.set_attn_implementation(own_name)


CHECKS: dict[str, Callable[[Any, str, str], float]] = {
    "probe": probe_is_right,
    "rescale": rescale_is_right,
    "register": register_is_right,
}


# --- the record and the page ---------------------------------------------------------------------


def work() -> Work:
    """Yield the families, and what fills their cells."""
    for family in FAMILIES:
        yield {"family": family}, partial(cells, family)


def cells(family: str) -> list[dict[str, Any]]:
    """Return each answer of the tools once, with the columns and tools that it is of."""
    found: dict[str, dict[str, Any]] = {}
    for column in COLUMNS:
        for tool in TOOLS:
            answer = cell(family, *setting(family, column), tool)
            found.setdefault(repr(answer), {**answer, "of": []})["of"].append(f"{column} {tool}")
    return list(found.values())


def setting(family: str, column: str) -> tuple[str, str]:
    """Return the implementation and the situation of a column."""
    return (column, "plain") if column in IMPLEMENTATIONS else (usual(family), column)


Cells = dict[tuple[str, str, str], dict[str, str]]


def read(record: Record) -> Cells:
    """Return the answer for each family, column and tool."""
    return {
        (entry.at["family"], *place.split()): {key: answer[key] for key in answer if key != "of"}
        for entry in record.entries
        for answer in entry.found
        for place in answer["of"]
    }


@cache
def usual(family: str) -> str:
    """Return the implementation that transformers takes for the family."""
    try:
        tiny(family, "sdpa")
    except ValueError:
        return "eager"
    return "sdpa"


PROSE = """\
# Compatibility

`probe`, `rescale` and `register` were each run on {families} families of models of transformers
{transformers}, under each implementation of attention, and in six situations under the one that
transformers takes: {tries} tries. In {right} the tool does what it says, in {refused} it refuses in
a line that says why, in {wrong} it is wrong. Of the refusals, {elsewhere} are of eager or flex
attention where the same tool does what it says with `attn_implementation="sdpa"`.

Three marks stand in each cell: for `probe`, `rescale` and `register`, in this order. ✓ means right,
a letter that the tool refuses, with the line below the tables, and – that there is no such thing:
an implementation that the family lacks, a cache in an encoder.

Right means the same as attention that is written out in double precision, key by key, and put in
the place of the model's own: the same numbers in the report, or the same output (gradients,
generated text) at the changed scale. Each family is a small model of two layers with random
weights, named as its configuration. Recorded with PyTorch {torch} on a CPU;
`python -m experiments.compatibility` records it again and writes this page.

"""


COUNTED = {"right": RIGHT, "refused": REFUSED, "wrong": WRONG}


def page(record: Record) -> str:
    """Return the page that shows a record."""
    found = read(record)
    letters: dict[str, str] = {}
    plain = list(table(found, letters, IMPLEMENTATIONS))
    others = list(table(found, letters, SITUATIONS))
    notes = [f"- {letter}: {line}\n" for line, letter in letters.items()]
    kinds = Counter(answer["is"] for answer in found.values())
    counts = {name: kinds[kind] for name, kind in COUNTED.items()}
    elsewhere = sum(
        found[family, implementation, tool]["is"] == REFUSED
        and found[family, "sdpa", tool]["is"] == RIGHT
        for family in FAMILIES
        for implementation in IMPLEMENTATIONS[1:]
        for tool in TOOLS
    )
    return "".join(
        [
            PROSE.format(
                **record.made,
                **counts,
                families=len(FAMILIES),
                tries=sum(counts.values()),
                elsewhere=elsewhere,
            ),
            "## By implementation of attention\n\n",
            *plain,
            "\n## By what the model is doing\n\n",
            "With the implementation that transformers takes for the family: sdpa, or eager where\n"
            "the model refuses that.\n\n",
            *others,
            "\n## What is refused, and in which words\n\n",
            *notes,
        ]
    )


def table(found: Cells, letters: dict[str, str], columns: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table, and put its refusals among the letters."""
    yield f"| family | {' | '.join(columns)} |\n"
    yield f"|---|{'---|' * len(columns)}\n"
    for family in FAMILIES:
        marks = [
            "\u00a0".join(mark(found[family, column, tool], letters) for tool in TOOLS)
            for column in columns
        ]
        yield f"| {family} | {' | '.join(marks)} |\n"


def mark(found: dict[str, str], letters: dict[str, str]) -> str:
    """Return the mark of a cell; a line that is new gets a letter."""
    if found["is"] != REFUSED:
        return {RIGHT: "✓", NONE: "–", WRONG: "✗"}[found["is"]]
    return letters.setdefault(shown(found["line"]), ascii_lowercase[len(letters)])


def shown(line: str) -> str:
    """Return a line with … for what is the model's in it."""
    line = re.sub(r"(attention in )\w+\. (\S+ \(\w+\).*? ran)", r"\1…. … ran", line)
    line = re.sub(r"(attention in )\w+\.", r"\1….", line)
    line = re.sub(r"\b\w+(Model|Stack|For\w+)\b(?= (refuses|has|does))", "…", line)
    return re.sub(r" \(see https.*?\)", "", line)


def main() -> None:
    """Record what is not recorded yet, and write the page."""
    torch.set_num_threads(1)
    made_with = provenance.made("numpy", "scipy", "torch", "transformers", threads=1)
    record = complete(RECORD, work(), command=COMMAND, settings={"seed": SEED}, made=made_with)
    replace(PAGE, page(record).encode("utf-8"))


if __name__ == "__main__":
    main()
