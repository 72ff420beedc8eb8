"""What a training runs on, and how: devices, the form of the step over them, and the steps of a dispatch.

In: settings and batch sizes. Out: `Devices`, which places states and batches, and spreads a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from xdesc_jax.data.mixture import Mixture
from xdesc_jax.data.resident import ResidentSet
from xdesc_jax.data.source import Source
from xdesc_jax.train import hosts, parallel
from xdesc_jax.train.parallel import Step

Backend = Literal["pmap", "sharded"]


class Batches(NamedTuple):
    """What the loop needs of a data source."""

    per_epoch: int
    epoch: Callable[[int, int], Iterator[Mapping[str, np.ndarray]]]  # (epoch, first batch) -> batches
    place: Callable[[Sequence[Mapping[str, np.ndarray]]], dict[str, jax.Array]]  # those of a dispatch, onto the devices


@dataclasses.dataclass(frozen=True)
class Devices:
    """Devices of all hosts that share each batch.

    Attributes:
        devices: those of a host side by side.
        steps_per_dispatch: steps that the host hands to them at once; changes nothing but the speed.
        backend: how the step runs on several, see `parallel.BACKENDS`; changes nothing but the speed.
    """

    devices: list[Any]
    steps_per_dispatch: int = 1
    backend: Backend = "pmap"

    @classmethod
    def choose(
        cls,
        batch_sizes: Sequence[int],
        require_accelerator: bool = False,
        steps_per_dispatch: int = 1,
        backend: Backend = "pmap",
    ) -> Devices:
        """All that jax finds.

        Args:
            batch_sizes: that they are to share.
            require_accelerator: fail where there is none, instead of taking the CPU.
            steps_per_dispatch, backend: see the attributes.

        Raises:
            ValueError: they cannot share such a batch, there is no accelerator or no step in a dispatch.
        """
        devices = parallel.choose_devices(require_accelerator)
        parallel.keep_compiled(devices)
        if steps_per_dispatch < 1:
            raise ValueError(f"steps_per_dispatch is {steps_per_dispatch}, expected at least 1")
        for batch_size in batch_sizes:
            check_batch(batch_size, devices)
        return cls(devices, steps_per_dispatch, backend)

    def __str__(self) -> str:
        return f"{len(self.devices)} x {self.kind}"

    @property
    def kind(self) -> str:
        """What a device is called."""
        return self.devices[0].device_kind

    @property
    def memory_bytes(self) -> int | None:
        """What a device can hold; None where jax does not know, as of a CPU."""
        found = jax.local_devices()[0].memory_stats()
        return found.get("bytes_limit") if found else None

    @property
    def platform(self) -> str:
        """'cpu', 'gpu' or 'tpu'."""
        return self.devices[0].platform

    @property
    def axis_name(self) -> str | None:
        """The axis over the devices that networks are built with."""
        return self._form.axis_name

    def steps(self, step: Callable) -> tuple[Step, Step]:
        """A step (state, batch, key, hyper) -> (state, metrics) over the devices: one, and those of a dispatch.

        The state given is used up. With several steps, batches come stacked and metrics leave stacked.
        """
        spread = partial(self._form.step, step, self.devices, donate=True)
        one = spread()
        return one, spread(together=self.steps_per_dispatch) if self.steps_per_dispatch > 1 else one

    def replicate(self, state: Any) -> Any:
        """A state on the devices."""
        return self._form.replicate(state, self.devices)

    def batches(self, training: Source | Mixture) -> Batches:
        """The training batches for the loop; of a set held on the devices, row numbers travel alone."""
        if not training.resident:
            return Batches(
                training.batches_per_epoch, training.epoch, lambda group: self._form.split(group, self.devices)
            )
        assert isinstance(training, ResidentSet | Mixture)
        place = self._form.resident(training.take_arrays(), self.devices, training.around)
        return Batches(training.batches_per_epoch, training.row_batches, place)

    @property
    def _form(self) -> parallel.Backend:
        return parallel.BACKENDS[self.backend]


def check_batch(batch_size: int, devices: Sequence[Any]) -> None:
    """Raises ValueError where the devices of all hosts cannot share a batch."""
    count, of_hosts = len(devices), f" of {jax.process_count()} hosts" if hosts.several() else ""
    if batch_size % count:
        raise ValueError(f"batch_size {batch_size} does not divide over {count} devices{of_hosts}")
