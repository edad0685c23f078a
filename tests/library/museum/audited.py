"""The audit of an exhibit, and the finding that each kind of fault is."""

import math

from attnlib.auditing import audit

CODE = {
    "multiplier": "scale",
    "scale twice": "scale",
    "dimension": "scale",
    "law in n": "law",
    "law in key": "law",
    "chunks": "law",
    "part of the dimension": "law",
    "mask scaled": "mask",
    "mask capped": "hidden",
    "window": "window",
    "future seen": "causal",
    "mask missing": "causal",
    "cache missed": "cache",
    "mask off by one": "cache",
    "padding counted": "padding",
    "grouping": "groups",
    "cap": "cap",
    "sink dropped": "sink",
    "value factor": "values",
    "cosine": "law",
    "dropout": "dropout",
    "precision": "precision",
}
"""The code of the finding that each kind of exhibit is."""


def with_signature(function, takes):
    """Return the function with what it takes as its signature."""
    if "attn_mask" in takes and "is_causal" in takes:
        return lambda q, k, v, attn_mask=None, is_causal=False: function(
            q, k, v, attn_mask=attn_mask, is_causal=is_causal
        )
    if "attn_mask" in takes:
        return lambda q, k, v, attn_mask=None: function(q, k, v, attn_mask=attn_mask)
    if "is_causal" in takes:
        return lambda q, k, v, is_causal=False: function(q, k, v, is_causal=is_causal)
    return lambda q, k, v: function(q, k, v)


def audited(exhibit, function):
    meant = exhibit.meant
    return audit(
        with_signature(function, exhibit.takes),
        d=exhibit.d,
        expected=exhibit.expected,
        heads=exhibit.heads,
        key_heads=exhibit.key_heads,
        cap=meant.get("cap", math.inf),
        window=int(meant["window"]) if "window" in meant else None,
        sink="sink" in meant,
        factor=meant.get("value factor", 1.0),
        causal_from="last",
        length=64,
    )
