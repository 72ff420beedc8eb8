"""Many devices: one device, pmap and sharded arrays give the same training."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import jax
import numpy as np
import pytest

from tests.support.eight_devices import lines_of
from xdesc_jax.train import parallel
from xdesc_jax.train.translators.run import train

VARIANTS = ("quadratic", "linear", "across views")  # the last is quadratic, too

# Runs in a process of its own, which has eight devices. Three steps on 40 rows, of which 0, 0 and 13 are padding: of
# eight devices two have no row of the last batch and one has two of five.
EIGHT_DEVICES = """
import json
import jax, numpy as np
from tests.train.translators import test_step as cases
from xdesc_jax.train import parallel

def batch(variant, i):
    if variant != "across views":
        return cases.make_batch(40, padding=13 * (i == 2), seed=i)
    return cases.make_batch(48, seed=i) | {"point": np.arange(48, dtype=np.int32) // 2 % 11}

def run(variant, form, count, together):
    backend, devices = parallel.BACKENDS[form], jax.local_devices()[:count]
    networks, step = cases.make_step(backend.axis_name, variant=variant.replace("across views", "quadratic"))
    step = backend.step(step, devices, together=together, donate=True)
    state, losses = backend.replicate(cases.fresh(networks), devices), []
    batches = [batch(variant, i) for i in range(3)]
    for i in range(0, 3, together):
        state, metrics = step(state, backend.split(batches[i : i + together], devices), cases.KEYS, cases.HYPER)
        losses += np.ravel(metrics["loss"].total).tolist()
    leaves = jax.tree.leaves(jax.device_get((state.params, state.batch_stats)))
    return {"losses": losses, "state": np.concatenate([np.ravel(x) for x in leaves]).tolist()}

print(json.dumps({" ".join(map(str, case)): run(*case) for case in CASES}))
"""
CASES = [(variant, *case) for variant in VARIANTS for case in (("pmap", 8, 3), ("sharded", 8, 3))]
CASES.append(("quadratic", "sharded", 8, 1))
ONE = [(variant, "pmap", 1, 1) for variant in VARIANTS]


@pytest.fixture(scope="module")
def eight_devices() -> dict[str, dict[str, list[float]]]:
    return json.loads(lines_of(f"CASES = {ONE + CASES}\n{EIGHT_DEVICES}")[-1])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_eight_devices_of_either_form_equal_one(eight_devices, case):
    """Also with the three steps in one dispatch; padding leaves devices of the last batch without a row."""
    one, found = eight_devices[f"{case[0]} pmap 1 1"], eight_devices[" ".join(map(str, case))]
    np.testing.assert_allclose(found["losses"], one["losses"], rtol=1e-5)
    expected = np.array(one["state"])
    assert np.linalg.norm(np.array(found["state"]) - expected) <= 1e-4 * np.linalg.norm(expected)


def test_rows_that_lie_on_the_devices_make_the_same_sharded_batches():
    devices, form = jax.local_devices()[:2], parallel.BACKENDS["sharded"]
    columns = {"x": np.arange(14, dtype=np.float32).reshape(7, 2)}
    rows = [{"row": np.array(r, np.int32), "mask": np.array([1, 1, 1, 0], bool)} for r in ([6, 2, 0, 0], [1, 5, 3, 0])]
    place = form.resident(columns, devices)
    for count in (1, 2):
        given = [{"x": columns["x"][b["row"]], "mask": b["mask"]} for b in rows[:count]]
        expected, found = form.split(given, devices), place(rows[:count])
        assert {n: x.sharding for n, x in found.items()} == {n: x.sharding for n, x in expected.items()}
        jax.tree.map(np.testing.assert_array_equal, dict(sorted(found.items())), dict(sorted(expected.items())))


def test_a_batch_that_does_not_divide_is_refused_by_either_form():
    for form in parallel.BACKENDS.values():
        with pytest.raises(ValueError, match="a batch of 10 rows does not divide over 4 devices"):
            form.split([{"mask": np.ones(10, bool)}], jax.local_devices())


@pytest.mark.parametrize("resident", [False, True])
def test_a_run_under_the_other_form_logs_the_same_and_is_the_same_run(toy_records, toy_config, tmp_path, resident):
    """How the step runs is no part of the configuration."""
    config = dataclasses.replace(toy_config, epochs=2, resident=resident)
    kept = partial(train, config, toy_records)
    expected = [json.loads(line) for line in (kept(tmp_path / "pmap") / "log.jsonl").read_text().splitlines()]
    kept(tmp_path / "sharded", backend="sharded", steps_per_dispatch=2)
    found = [json.loads(line) for line in (tmp_path / "sharded" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.get("loss", 0) == pytest.approx(b.get("loss", 0), rel=1e-4)
    kept(tmp_path / "sharded")  # finished: the other form accepts the run
