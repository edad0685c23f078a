"""The table of all rules in use: formula and numbers of each in one row."""

import re

from attnlib.policies import POLICIES, Policy
from book.formulas import mathml
from book.values import Markup, Table

MODELS = {"transformer": "GPT-2", "qk_norm": "ViT-22B, Qwen3"}
"""Models that readers look for by name, by their rule. GPT-2: scale_attn_weights=True in
huggingface/transformers, models/gpt2/configuration_gpt2.py at 01ae98a. The others: `meaning`."""


def letters(policy: Policy) -> dict[str, str]:
    """Return the letter of each constant in the formula, by name: a meaning begins with its letter.

    >>> letters(POLICIES["yarn"])
    {'coefficient': 'c', 'train_length': 'L'}
    """
    by_name = {}
    for setting in policy.settings:
        letter = re.match(r"(n₀|[A-Za-z])(?=[,;:]|$)", setting.meaning)
        if letter:
            by_name[setting.name] = letter[1]
    return by_name


def rules(n: int, length: int, d: int) -> Table:
    """Return all rules with their formulas, constants, and numbers at two lengths."""
    table = Table(
        *("rule", "formula", "times"),
        *(f"scale at n = {n}", f"α at n = {length}", f"α at n = {n}"),
        name="table-rules",
    )
    for policy in POLICIES.values():
        table.row(
            title_markup(policy),
            formula_markup(policy),
            "cos" if policy.applied_to == "cosine" else "q·k",
            f"{float(policy.scale(n, d)):.4g}",
            f"{float(policy.alpha(length, d)):.3f}",
            f"{float(policy.alpha(n, d)):.3f}",
        )
    return table


def title_markup(policy: Policy) -> Markup:
    """Return the title of a rule, the models that have it, and its name in the library."""
    models = f" ({MODELS[policy.name]})" if policy.name in MODELS else ""
    text = f"{policy.title}{models}"
    return Markup(f"{text}: {policy.name}", f"{text} <code>{policy.name}</code>")


def formula_markup(policy: Policy) -> Markup:
    """Return a rule's formula and constants, in HTML as MathML, elsewhere as LaTeX."""
    values = policy.constants
    constants = ", ".join(
        f"{letter} = {values[name]:.6g}" for name, letter in letters(policy).items()
    )
    text = f"{policy.formula}; {constants}" if constants else policy.formula
    return Markup(text, f"{mathml(policy.formula)} <small>{constants}</small>")
