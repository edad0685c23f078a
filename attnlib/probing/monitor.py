"""Watch the attention of a model while it trains."""

import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Self

import numpy as np
from torch import nn

from attnlib import _checking
from attnlib.extras import extra_packages
from attnlib.models import torch_internals
from attnlib.probing.alarms import PATIENCE, Alarm, find_alarms
from attnlib.probing.clipping import clip
from attnlib.probing.observer import Observer, list_first, make_collector
from attnlib.probing.report import Report
from attnlib.probing.summary import layer_name

Log = Callable[[str, float, int], object]
"""A function of a name, a number and the step, such as TensorBoard's add_scalar."""

Recent = defaultdict[tuple[str, int], deque[dict[str, Any]]]
"""The lines of each head at the last `PATIENCE` watched steps, by layer and head."""

LOGGED: dict[str, Callable[[Any], float]] = {
    "alpha_to_critical": np.max,
    "largest_logit": np.max,
    "entropy": np.min,
    "effective_keys": np.mean,
    "largest_weight": np.max,
    "first_weight": np.max,
    "gradient": np.min,
    "output_std": np.mean,
}
"""The logged columns of a report, with the function that makes one number of a layer's heads."""


class Monitor:
    """Measure a model's attention every so many training steps, log it, and raise alarms.

        with Monitor(model, every=100, log=writer.add_scalar) as monitor:
            for batch in batches:
                ...                    # the training loop as it was
        monitor.table()                # all that was measured, by step, layer and head

    - `model`: an nn.Module. Of a model under torch.compile give what that has returned, or use a
      callback: a step that is watched runs as the model is written, the others in their graphs.
    - `every`: the first step and each `every`-th after it are watched, by default each 100th.
      A step is a call of the model in training mode. Where a step is several calls, set
      `monitor.step = number` at its beginning: the first call of a step that is due is watched.
      `callback()` does that in transformers' Trainer, `lightning_callback()` in Lightning.
    - `log`: a function of ("attention/LAYER/COLUMN", number, step), such as TensorBoard's
      SummaryWriter.add_scalar. It gets for each layer the largest over its heads of
      `alpha_to_critical`, `largest_logit`, `largest_weight` and `first_weight`, the smallest of
      `entropy` and `gradient`, and the mean of `effective_keys` and `output_std`, columns of
      `attnlib.probing.DEFINITIONS`.
    - `rows`: about how many rows of each head are measured, by default 256, from up to four
      sequences and all along their length.
    - `on_alarm`: a function that gets each `Alarm`. By default each is a UserWarning.

    `monitor.tables` has the table of each step that was watched, as `Report.table`, with NaN for
    random scores. `monitor.alarms` has an `Alarm` for each head and kind: the first step
    at which it holds, the layer, the head, the name, and the reason in words. The kinds are

    - "entropy collapse": α/α_c and the largest logit have both grown by half over the last three
      watched steps, and α is above 1.2 α_c, where a few keys hold the weight of a random row;
    - "dilution": none of 256 keys or more stands out, α is below α_c/2, and the largest weight has
      fallen by a factor of e over those steps;
    - "dead head": over those steps the first key has 99 % of the weight, or no gradient passes (g
      below α_c/100); or over twenty its weights are even (1/Y above 0.9 n) and do not sharpen. A
      head that has learned a fixed pattern to the end is listed too;
    - "not finite": NaN, infinity or an overflow, at once.

    Outputs, gradients and the model's random numbers stay bitwise the same. Nothing is done between
    the steps that are watched, and each of these adds one line for each head. In a distributed run
    it measures what this process has: some heads, some sequences, and under context parallelism
    some of the keys, so that n is not that of the whole row.

    Warns with a UserWarning at the end where no step was watched.

    Raises ValueError or TypeError for `every` or `rows` below 1, and for a `log` or `on_alarm` that
    is not a function; RuntimeError inside a graph of torch.compile; and the errors of `probe` for a
    model, or where a step calls no attention that can be measured. Chapter: probe.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 100,
        log: Log | None = None,
        rows: int = 256,
        on_alarm: Callable[[Alarm], object] | None = None,
    ) -> None:
        torch_internals.check_model(torch_internals.uncompiled(model))
        for name, function in {"log": log, "on_alarm": on_alarm}.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, got {name}={function!r:.80}")
        self.model = model
        self.every = _checking.integer("every", every, minimum=1)
        self.rows = _checking.integer("rows", rows, minimum=1)
        self.tables: dict[int, Any] = {}
        """What was measured at each watched step: `Report.table`, with NaN for random scores."""
        self.alarms: list[Alarm] = []
        """Each head's first alarm of each kind."""
        self.step: int | None = None
        self._rng = np.random.default_rng(0)
        self._log = log
        self._on_alarm = on_alarm
        self._recent: Recent = defaultdict(lambda: deque(maxlen=PATIENCE))
        self._unclipped: Any = None
        self._calls = 0
        self._entered = 0
        self._observer: Observer | None = None
        self._expected_call = ExitStack()

    def __enter__(self) -> Self:
        self._entered = len(self.tables)
        self._add_hooks()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._remove_hooks()
        self._warn_if_unwatched(error_type, 2)

    def _add_hooks(self) -> None:
        """Hook the model: `_before_call` and `_after_call` run with each of its calls."""
        self._hooks = [
            self.model.register_forward_pre_hook(self._before_call, prepend=True, with_kwargs=True),
            self.model.register_forward_hook(self._after_call, always_call=True),
        ]

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _warn_if_unwatched(self, error_type: type[BaseException] | None, stacklevel: int) -> None:
        """Warn if no step was watched, unless an exception has ended the run."""
        if error_type is None and len(self.tables) == self._entered:
            warnings.warn(
                f"the monitor has watched no step of {type(self.model).__name__}: it was not "
                "called itself, in training mode, at a step that is due. Lightning calls "
                "training_step instead: pass monitor.lightning_callback() to its Trainer",
                stacklevel=stacklevel + 1,
            )

    def clip(self, limit: float = 100.0) -> list[tuple[str, int, float]]:
        """Apply `attnlib.probing.clip` where a step has been watched since the last call.

        - `limit`: the largest logit allowed, by default 100.

        Call it after each step of the optimiser. It knows the logits of the sampled rows: with
        `rows` at least the tokens of a batch it knows all. Returns a list of (layer, head, largest
        logit) and raises errors as `clip`; the list is empty where no step has been watched.
        """
        table, self._unclipped = self._unclipped, None
        return [] if table is None else clip(torch_internals.uncompiled(self.model), table, limit)

    def table(self) -> Any:
        """Return a pandas DataFrame: the tables of all watched steps, with a column `step`.

        It is empty where none was watched. Raises ModuleNotFoundError without pandas.
        """
        with extra_packages("table"):
            import pandas as pd

        parts = [table.assign(step=step) for step, table in self.tables.items()]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"step": []})

    def _before_call(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Start to watch this call if it is in training mode and its step is due."""
        if not module.training or torch_internals.in_backward_pass():
            return
        step = self._calls if self.step is None else self.step
        self._calls += 1
        observer = self._start_watch(step)
        if observer is not None:
            observer.enter_module(module, args, named)

    def _after_call(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """Keep and log the measurements if this call was watched."""
        self._finish_watch(output is not None)  # None: the call has raised

    def _start_watch(self, step: int) -> Observer | None:
        """Start to watch a step and return its observer; None if it is not due, or was watched."""
        if step % self.every or step in self.tables or self._observer is not None:
            return None
        self._watched = ExitStack()
        self._watched.enter_context(torch_internals.eagerly())  # first: it refuses graphs
        self._report, self._watched_step = Report(theory=False), step
        model = torch_internals.uncompiled(self.model)
        self._observer = Observer(model, make_collector(self._report, self.rows, self._rng))
        self._watched.enter_context(self._observer.at_work())
        return self._observer

    def _finish_watch(self, completed: bool = True) -> None:
        """End the watch, if any; keep and log its measurements if the call was `completed`."""
        observer, self._observer = self._observer, None
        if observer is None:
            return
        self._watched.close()
        if not completed:
            return
        if not self.tables:
            observer.finish()
        table = self._unclipped = self.tables[self._watched_step] = self._report.table()
        if self._log is not None:
            for name, number in _logged_numbers(table):
                self._log(name, number, self._watched_step)
        self._raise_alarms(table, self._watched_step)

    def _raise_alarms(self, table: Any, step: int) -> None:
        """Keep a step's new alarms, and give them to `on_alarm`, or warn of them without it."""
        raised = {(alarm.layer, alarm.head, alarm.name) for alarm in self.alarms}
        new = []
        for line in table.to_dict("records"):
            layer = layer_name(line)
            recent = self._recent[layer, line["head"]]
            recent.append(line)
            for name, why in find_alarms(recent):
                if (layer, line["head"], name) not in raised:
                    new.append(Alarm(step, layer, line["head"], name, why))
        self.alarms += new
        if self._on_alarm is not None:
            for alarm in new:
                self._on_alarm(alarm)
        elif new:
            alarms = [
                f"{entry.name} in {entry.layer} head {entry.head}: {entry.why}" for entry in new
            ]
            shown = list_first(alarms, "; ")
            warnings.warn(f"step {step}: {shown} (monitor.alarms has all)", stacklevel=2)

    def callback(self) -> Any:
        """Return a TrainerCallback for transformers' Trainer; it counts the Trainer's steps."""
        with extra_packages("probe"):
            from transformers import TrainerCallback

        monitor = self

        class Callback(TrainerCallback):  # type: ignore[misc]
            """Watch the first batch of each step that is due."""

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                monitor._entered = len(monitor.tables)

            def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
                monitor._watch_next_call(state.global_step)

            def on_substep_end(self, *_: Any, **__: Any) -> None:
                monitor._expected_call.close()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                monitor._expected_call.close()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                monitor._warn_if_unwatched(None, 2)

        return Callback()

    def _watch_next_call(self, step: int) -> None:
        """Watch the next call of the model if `step` is due, also where the trainer compiles it."""
        self.step = step
        self._expected_call.close()  # after an error it is open
        if step % self.every == 0:
            self._expected_call.enter_context(torch_internals.eagerly())
            self._add_hooks()
            self._expected_call.callback(self._remove_hooks)

    def lightning_callback(self) -> Any:
        """Return a Lightning Callback that watches the steps due, as the Trainer counts them."""
        lightning: Any = import_module("lightning.pytorch")  # who has a Trainer of its has it
        monitor = self

        class Callback(lightning.Callback):  # type: ignore[misc]
            """Watch the batch of each step that is due: Lightning does not call the module."""

            def on_fit_start(self, *_: Any) -> None:
                monitor._entered = len(monitor.tables)

            def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
                monitor._start_watch(trainer.global_step)

            def on_train_batch_end(self, *_: Any) -> None:
                monitor._finish_watch()

            def on_exception(self, *_: Any) -> None:
                monitor._finish_watch(completed=False)

            def on_fit_end(self, *_: Any) -> None:
                monitor._warn_if_unwatched(None, 2)

        return Callback()


def _logged_numbers(table: Any) -> Iterable[tuple[str, float]]:
    """Yield the names "attention/LAYER/COLUMN" and the numbers that are logged of a table."""
    for (layer, call), heads in table.groupby(["layer", "call"], sort=False):
        layer_call = layer_name({"layer": layer, "call": call})
        for column, reduce in LOGGED.items():
            yield f"attention/{layer_call}/{column}", float(reduce(heads[column]))
