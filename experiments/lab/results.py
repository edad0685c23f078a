"""The file of a run: its configuration, what it was made with, and what it gave.

One JSON object, in a file that a hash of the configuration names. Of the model it has what differs
from the defaults of `Config`. It is believed when everything in it agrees, and else the error says
in one line which file it is and what is wrong with it.

Source 002. Chapter: training.
"""

import json
import math
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from attnlib import checking, provenance
from attnlib.checking import FloatArray
from attnlib.files import read_json
from experiments.lab.model import Config
from experiments.lab.recall import FIELDS, LAWS, MODEL_FIELDS, POWERS, Found, Task, lengths
from experiments.lab.train import Run, Training, final_loss

Table = dict[str, Any]

SETTING_KEYS = ("model", "training", "corpus")
RUN_KEYS = (
    *("diverged_at", "final_loss", "validation_loss", "losses"),
    *("recorded_at", "gradient_norms", "branch_ratios"),
)
ATTENTION_KEYS = ("spreads", "effective_keys")
"""What there is beside these where `Training.record_attention` asks for it."""
FOUND_KEYS = Found._fields
"""What there is in their place where there was something to find."""
MADE = "made"
"""What the run was made with: `attnlib.provenance.made`."""
VERSIONS = "versions"
"""In its place until 1.0.0: versions of packages, and neither commit nor processor nor threads."""


class ResultError(ValueError):
    """A file that is not the result of a run, or not of this one; the message is one line."""


@dataclass(frozen=True)
class Setting:
    """One run of a sweep. Chapter: training."""

    variant: str
    """What the file calls it."""
    config: Config
    """The model."""
    training: Training | Task
    """How it is trained, the seed included: on a text, or to find."""
    corpus: str = ""
    """The name of the text."""
    sha256: str = ""
    """Of the text."""

    def identity(self) -> Table:
        """Return the whole configuration.

        A JSON object with the keys "model", "training" and "corpus", or "model" and "task". A
        word, such as alpha = "typical", stands there as the word.
        """
        return _plain(asdict(self.config), asdict(self.training), self)

    @property
    def name(self) -> str:
        """A hash of what differs from the defaults: a field that is added later changes none."""
        identity = _plain(_changed(self.config), _changed(self.training), self)
        return sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _plain(model: Table, training: Table, setting: Setting) -> Table:
    text = {"name": setting.corpus, "sha256": setting.sha256}
    found = {"model": model, "training": training, "corpus": text}
    if isinstance(setting.training, Task):
        found = {"model": model, "task": training}
    plain: Table = json.loads(json.dumps(found))
    return plain


def _changed(given: Config | Training | Task) -> Table:
    defaults = asdict(type(given)())
    return {name: value for name, value in asdict(given).items() if value != defaults[name]}


def encoded(setting: Setting, run: Run | Found, made: Table) -> Table:
    """Return a run with its configuration and what it was made with, as it is written.

    Numbers of float32 precision have the digits that tell them apart; a norm or a ratio that is not
    finite is null. Raises TypeError for what is no setting. Chapter: training.
    """
    checking.instance("setting", setting, Setting)
    configuration = {**setting.identity(), "model": _changed(setting.config)}
    if isinstance(run, Found):
        return {**configuration, MADE: made, **_rounded(run._asdict())}
    type_ = _number_type(setting)

    def plain(values: FloatArray) -> list[Any]:
        if values.ndim > 1:
            return [plain(row) for row in values]
        return [float(str(x)) if np.isfinite(x) else None for x in values.astype(type_)]

    recorded = {name: getattr(run, name) for name in ATTENTION_KEYS}
    return {
        **configuration,
        MADE: made,
        "diverged_at": run.diverged_at,
        "final_loss": run.final_loss,
        "validation_loss": run.validation_loss,
        "losses": plain(run.losses),
        "recorded_at": run.recorded_at.tolist(),
        "gradient_norms": plain(run.gradient_norms),
        "branch_ratios": plain(run.branch_ratios),
        **{name: plain(rows) for name, rows in recorded.items() if rows is not None},
    }


def _rounded(value: Any) -> Any:
    """Return numbers as they are written: to eight digits, of which a mean over rows has fewer."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def stored(path: Path, setting: Setting) -> Run | Found | None:
    """Return the run in the file of a result, or None where there is no file.

    The file may lack a field of the configuration that is younger, and has then its default. Raises
    ResultError for a file of another configuration, one that is not JSON, that lacks something or
    has too much, and one whose numbers are not all there, not finite or do not agree; OSError for
    one that cannot be read. Chapter: training.
    """
    try:
        table = read_json(path)
        _check_setting(table, setting)
        if isinstance(setting.training, Task):
            try:
                return _found(table, setting)
            except (AttributeError, KeyError, TypeError) as error:
                raise ValueError(f"its tables have other parts: {error!r:.80}") from None
        return _decoded(table, setting)
    except FileNotFoundError:
        return None
    except RecursionError:
        raise ResultError(f"{path} is not the result of its run: it is nested too deeply") from None
    except ValueError as error:
        raise ResultError(f"{path} is not the result of its run: {error}") from error


def _check_setting(table: Any, setting: Setting) -> None:
    """Raise ValueError unless the table has all keys, and says that it is of this setting."""
    if not isinstance(table, dict):
        raise ValueError(f"it must be a table, got {table!r:.80}")
    made = VERSIONS if VERSIONS in table else MADE
    training = setting.training
    if isinstance(training, Task):
        keys = [*setting.identity(), made, *FOUND_KEYS]
    else:
        keys = [*setting.identity(), made, *RUN_KEYS]
        keys += ATTENTION_KEYS if training.record_attention else ()
    for key in keys:
        if key not in table:
            raise ValueError(f"it has no {key}")
    if len(table) > len(keys):
        raise ValueError(f"it has too much: {', '.join(map(repr, table))!s:.200}")
    if made == MADE:
        provenance.check(table[MADE])
    elif not isinstance(table[made], dict) or not all(
        isinstance(v, str) for v in table[made].values()
    ):
        raise ValueError(f"versions must be a table of words, got {table[made]!r:.80}")
    younger = _plain(asdict(Config()), asdict(type(training)()), setting)
    for part, wanted in setting.identity().items():
        if not isinstance(table[part], dict) or not table[part].keys() <= wanted.keys():
            raise ValueError(f"{part} must be a table of {', '.join(wanted)}")
        for key, value in wanted.items():
            found = table[part].get(key, younger[part][key])
            if type(found) is not type(value) or found != value:
                raise ValueError(f"it is of another run, with {key}={found!r:.80}, not {value!r}")


def _found(table: Table, setting: Setting) -> Found:
    """Return what a head has learned, all its numbers finite and in their places."""
    found = Found(*(table[key] for key in FOUND_KEYS))
    wanted = lengths(setting.config, cast(Task, setting.training))
    if found.diverged_at is not None:
        wanted = []
    if [one.get("n") for one in found.measured] != wanted:
        raise ValueError(f"measured must be at the lengths {wanted}, got {found.measured!r:.80}")
    _numbers("losses", found.losses, len(found.losses), math.inf)
    task = cast(Task, setting.training)
    fields = (*FIELDS, *(MODEL_FIELDS if task.name != "nearest" else ()))
    for one in found.measured:
        laws = [law for law in (one.get("laws"), one.get("answers")) if law]
        if one.keys() != set(fields) or any(law.keys() != set(LAWS) for law in laws):
            raise ValueError(f"measured must be of {', '.join(fields)}, got {one!r:.80}")
        numbers = [one[name] for name in fields if type(one[name]) not in (int, dict, list)]
        numbers += one["kappa"] + [value for law in laws for value in law.values()]
        wrong = [value for value in numbers if type(value) is not float]
        if wrong or len(one["kappa"]) != len(POWERS):
            raise ValueError(f"measured must be numbers, got {wrong!r:.80}")
    return found


def _decoded(table: Table, setting: Setting) -> Run:
    training, depth = cast(Training, setting.training), setting.config.depth
    diverged_at, type_ = table["diverged_at"], _number_type(setting)
    if diverged_at is not None and not _whole(diverged_at, training.steps - 1):
        raise ValueError(f"diverged_at must be null or a step, got {diverged_at!r:.80}")
    kept = training.steps if diverged_at is None else diverged_at
    largest = float(np.finfo(type_).max)
    limit = min(training.loss_limit, largest)
    losses = _numbers("losses", table["losses"], len(training.means(kept)), limit).astype(type_)
    steps = [step for step in range(kept) if training.records(step)]
    if repr(table["recorded_at"]) != repr(steps):
        raise ValueError(f"recorded_at must be {steps!s:.80}, got {table['recorded_at']!r:.80}")
    norms = _numbers("gradient_norms", table["gradient_norms"], len(steps), largest, gaps=True)

    def by_block(name: str) -> FloatArray:
        rows = table[name]
        if not isinstance(rows, list) or len(rows) != len(steps):
            raise ValueError(f"{name} must be {len(steps)} lists, got {rows!r:.80}")
        numbers = [_numbers(name, row, depth, largest, gaps=True) for row in rows]
        return np.reshape(numbers, (-1, depth)).astype(type_).astype(np.float64)

    run = Run(
        losses=losses.astype(np.float64),
        diverged_at=diverged_at,
        final_loss=_one("final_loss", table, diverged_at is not None),
        validation_loss=_one("validation_loss", table, None),
        recorded_at=np.array(steps, dtype=np.int64),
        gradient_norms=norms.astype(type_).astype(np.float64),
        branch_ratios=by_block("branch_ratios"),
        **{name: by_block(name) for name in ATTENTION_KEYS if training.record_attention},
    )
    if run.final_loss is None:
        if run.validation_loss is not None:
            raise ValueError("validation_loss must be null where a run diverged")
        return run
    last = final_loss(np.repeat(run.losses, training.losses_every))
    rounded = training.losses_every > 1  # a mean is kept with the digits of its type
    tolerance = max(1e-12, float(np.finfo(type_).eps)) if rounded else 1e-12
    if not math.isclose(run.final_loss, last, rel_tol=tolerance):
        raise ValueError(f"final_loss is {run.final_loss!r}, and its losses say {last!r}")
    return run


def _whole(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _one(name: str, table: Table, gap: bool | None) -> float | None:
    """Return a number, or None where there is a `gap`; None for one allows both."""
    value = table[name]
    if gap is not False and value is None:
        return None
    if gap is True:
        raise ValueError(f"{name} must be null where a run diverged, got {value!r:.80}")
    return float(_numbers(name, [value], 1, math.inf)[0])


def _numbers(name: str, values: Any, count: int, most: float, *, gaps: bool = False) -> FloatArray:
    """Return a list of so many floats from 0 to `most`, with NaN where `gaps` may be null."""
    if not isinstance(values, list) or len(values) != count:
        got = f"{len(values)}" if isinstance(values, list) else f"{values!r:.80}"
        raise ValueError(f"{name} must be {count} numbers, got {got}")
    for value in values:
        if not ((type(value) is float and 0.0 <= value <= most) or (gaps and value is None)):
            raise ValueError(f"{name} must be numbers from 0 to {most:g}, got {value!r:.80}")
    return np.array(values, dtype=np.float64)


def _number_type(setting: Setting) -> type[np.floating[Any]]:
    return np.float64 if cast(Training, setting.training).precision == "float64" else np.float32
