"""The model file: what goes in comes out, and everything else is refused by name."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec
from xdesc_jax.translation.bundle import Bundle, ParitySample, load, save_ratios, space_id
from xdesc_jax.translation.copies import inherit_space
from xdesc_jax.translation.deviation import RowStatistics


def layers(rng, *widths):
    return [
        (rng.normal(size=(a, b)).astype(np.float32), rng.normal(size=b).astype(np.float32))
        for a, b in zip(widths, widths[1:], strict=False)
    ]


@pytest.fixture
def bundle():
    rng = np.random.default_rng(0)
    specs = {"hardnet": get_spec("hardnet"), "bits": binary_spec("bits", 21)}
    networks = {
        "encoder/hardnet": layers(rng, 128, 7, 6, 5),
        "decoder/hardnet": layers(rng, 5, 9, 128),
        "encoder/bits": layers(rng, 21, 5),
        "decoder/bits": layers(rng, 5, 11, 21),
    }
    rows = rng.normal(size=(3, 128)).astype(np.float32)
    return Bundle(
        kind="encoder_decoder",
        specs=specs,
        embedding_width=5,
        networks=networks,
        statistics={
            "hardnet": RowStatistics(rows[0], np.abs(rows[1])),
            "bits": RowStatistics(rows[0, :21], np.abs(rows[1, :21]), np.eye(21, dtype=np.float32)),
        },
        sample=ParitySample(
            inputs={"hardnet": rows, "bits": rng.integers(0, 256, (3, 3), dtype=np.uint8)},
            embeddings={"hardnet": rows[:, :5], "bits": rows[:, 5:10]},
            translations={("hardnet", "bits"): np.abs(rows[:, :21])},
        ),
        config={"epochs": 5, "name": "éà"},
        provenance={"data": "photos", "steps": 780},
        ratios={"hardnet": 0.9, "hardnet->bits": 0.874, "bits|hardnet": 1},
    )


def one_network(name, activation):
    """A header entry that describes a single network."""
    return {"layers": json.dumps({name: {"widths": [1, 2], "hidden_activation": activation}})}


def rewrite(path, *, header=None, tensors=None, drop=()):
    """Changes header entries or tensors of a model file."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata() | (header or {})
    values = load_file(path) | (tensors or {})
    save_file({k: v for k, v in values.items() if k not in drop}, path, metadata=metadata)
    return path


def test_a_saved_bundle_loads_equal(bundle, tmp_path):
    found = load(bundle.save(tmp_path / "model.safetensors"))
    for field in ("kind", "specs", "embedding_width", "config", "provenance", "space_id", "ratios"):
        assert getattr(found, field) == getattr(bundle, field)
    assert found.networks.keys() == bundle.networks.keys()
    for name, expected in bundle.networks.items():
        for (kernel, bias), (kernel0, bias0) in zip(found.networks[name], expected, strict=True):
            np.testing.assert_array_equal(kernel, kernel0)
            np.testing.assert_array_equal(bias, bias0)
    for name, statistics in bundle.statistics.items():
        assert found.statistics[name].arrays().keys() == statistics.arrays().keys()
        for field, value in statistics.arrays().items():
            np.testing.assert_array_equal(getattr(found.statistics[name], field), value)
    for field in ("inputs", "embeddings", "translations"):
        values, expected = getattr(found.sample, field), getattr(bundle.sample, field)
        assert values.keys() == expected.keys()
        for key in expected:
            np.testing.assert_array_equal(values[key], expected[key])
            assert values[key].dtype == expected[key].dtype


def with_plain(bundle):
    """The bundle with one descriptor more."""
    rng = np.random.default_rng(1)
    specs = bundle.specs | {"plain": DescriptorSpec("plain", 4)}
    networks = bundle.networks | {"encoder/plain": layers(rng, 4, 5), "decoder/plain": layers(rng, 5, 4)}
    return Bundle("encoder_decoder", specs, 5, networks)


def test_a_model_that_holds_another_unchanged_may_bear_its_space(bundle, tmp_path):
    extended = with_plain(bundle)
    assert extended.space_id != bundle.space_id
    named = inherit_space(extended, bundle)
    assert named.space_id == bundle.space_id and named.embedding_spec == bundle.embedding_spec
    found = load(named.save(tmp_path / "model.safetensors"))
    assert inherit_space(found, named).space_id == bundle.space_id


def test_a_model_that_holds_another_unchanged_keeps_its_ratios(bundle):
    calibrated = dataclasses.replace(bundle, ratios={"bits|bits": 0.8, "bits->hardnet": 0.95})
    more = dataclasses.replace(with_plain(bundle), ratios={"plain|bits": 0.7, "bits->hardnet": 0.96})
    assert inherit_space(with_plain(bundle), calibrated).ratios == calibrated.ratios
    assert inherit_space(more, calibrated).ratios == {"bits|bits": 0.8, "plain|bits": 0.7, "bits->hardnet": 0.96}


@pytest.mark.parametrize("network", ["encoder/bits", "decoder/hardnet"])
def test_a_model_that_changes_a_member_may_not_bear_its_space(bundle, network):
    extended = with_plain(bundle)
    (kernel, bias), *rest = extended.networks[network]
    changed = {network: [(kernel, np.nextafter(bias, np.float32(9))), *rest]}
    with pytest.raises(ValueError, match=f"network '{network}' differs from that of space {bundle.space_id}"):
        inherit_space(dataclasses.replace(extended, networks=extended.networks | changed), bundle)
    specs = extended.specs | {"bits": binary_spec("bits", 21, hidden=(3,))}
    with pytest.raises(ValueError, match="'bits' is DescriptorSpec.* expected as in space"):
        inherit_space(dataclasses.replace(extended, specs=specs), bundle)


def test_the_space_id_is_the_encoders_alone(bundle):
    assert len(bundle.space_id) == 12 and int(bundle.space_id, 16) >= 0
    kernel, bias = bundle.networks["decoder/bits"][0]
    other_decoder = bundle.networks | {"decoder/bits": [(2 * kernel, bias), *bundle.networks["decoder/bits"][1:]]}
    assert space_id(other_decoder) == bundle.space_id
    kernel, bias = bundle.networks["encoder/bits"][0]
    assert space_id(bundle.networks | {"encoder/bits": [(kernel, bias + 1)]}) != bundle.space_id


def test_a_pair_model_has_no_joint_space(tmp_path):
    specs = {n: DescriptorSpec(n, w) for n, w in (("a", 4), ("b", 3))}
    networks = {"pair/a/b": layers(np.random.default_rng(0), 4, 6, 3)}
    found = load(Bundle("pair", specs, 0, networks).save(tmp_path / "pair.safetensors"))
    assert found.space_id is None and found.embedding_spec is None
    assert found.networks.keys() == networks.keys()


def test_float16_tensors_load_as_float32(bundle, tmp_path):
    path = bundle.save(tmp_path / "model.safetensors")
    rewrite(path, tensors={"encoder/bits/0/kernel": bundle.networks["encoder/bits"][0][0].astype(np.float16)})
    kernel, _ = load(path).networks["encoder/bits"][0]
    assert kernel.dtype == np.float32
    np.testing.assert_allclose(kernel, bundle.networks["encoder/bits"][0][0], rtol=1e-3, atol=1e-6)


def test_a_file_without_ratios_loads(bundle, tmp_path):
    path = bundle.save(tmp_path / "model.safetensors")
    with safe_open(path, "numpy") as file:
        metadata = {k: v for k, v in file.metadata().items() if k != "ratios"}
    save_file(load_file(path), path, metadata=metadata)
    assert load(path).ratios == {}


def test_ratios_of_a_pair_model_are_those_of_its_networks():
    specs = {n: DescriptorSpec(n, w) for n, w in (("a", 4), ("b", 3))}
    pair = Bundle("pair", specs, 0, {"pair/a/b": layers(np.random.default_rng(0), 4, 6, 3)})
    assert dataclasses.replace(pair, ratios={"a->b": 0.8, "b": 0.9}).ratios == {"a->b": 0.8, "b": 0.9}
    for absent in ("b->a", "a|b"):
        with pytest.raises(ValueError, match="expected one of a, a->b, b"):
            dataclasses.replace(pair, ratios={absent: 0.8})


def data_of(path):
    """Header but its ratios, and the bytes behind it."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    del header["__metadata__"]["ratios"]
    return header, content[start:]


def test_new_ratios_leave_all_else_as_it_is(bundle, tmp_path):
    path, out = bundle.save(tmp_path / "model.safetensors"), tmp_path / "out" / "model.safetensors"
    rewrite(path, tensors={"encoder/bits/0/kernel": bundle.networks["encoder/bits"][0][0].astype(np.float16)})
    save_ratios(path, out, {"hardnet|bits": 0.95})
    assert load(out).ratios == {"hardnet|bits": 0.95}
    assert data_of(out) == data_of(path)
    save_ratios(out, out, {})
    assert load(out).ratios == {} and data_of(out) == data_of(path)


def test_ratios_that_do_not_fit_leave_the_old_file(bundle, tmp_path):
    path = bundle.save(tmp_path / "model.safetensors")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"model.safetensors: ratio of 'hardnet->sift', expected one of"):
        save_ratios(path, path, {"hardnet->sift": 0.9})
    assert path.read_bytes() == before


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.safetensors"):
        load(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("keep", [0, 5, 96, -1])
def test_a_file_cut_short_is_refused_by_name(bundle, tmp_path, keep):
    path = bundle.save(tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="model.safetensors: not a safetensors file, or cut short"):
        load(path)


@pytest.mark.parametrize(
    "header, message",
    [
        ({"format": "pt"}, "format is 'pt', expected 'xdesc-translator'"),
        ({"version": "7"}, "version is '7', this package reads up to 6"),
        ({"specs": "[{"}, "damaged"),
        ({"specs": "[5]"}, "damaged"),
        ({"layers": "[]"}, "damaged"),
        ({"config": "[" * 100_000}, "damaged"),
        ({"provenance": "[]"}, "provenance is a JSON list, expected an object"),
        ({"kind": '"flow"'}, "kind is 'flow'"),
        ({"embedding_width": "6"}, r"encoder/hardnet/2: kernel \(6, 5\).* expected \(6, 6\)"),
        ({"ratios": '{"bits->hardnet": 1.2}'}, "ratio of 'bits->hardnet' is 1.2, expected a number over 0"),
        ({"ratios": '{"bits": NaN}'}, "ratio of 'bits' is nan"),
        ({"ratios": '{"bits": true}'}, "ratio of 'bits' is True"),
        ({"ratios": '{"sift->bits": 0.9}'}, r"ratio of 'sift->bits', expected one of bits, bits->hardnet, bits\|bits"),
        ({"ratios": '{"bits->bits": 0.9}'}, "ratio of 'bits->bits', expected one of"),
        ({"ratios": "[0.9]"}, r"ratios are \[0.9\], expected numbers by name"),
        (one_network("encoder/sift", "relu"), "encoder/sift"),
        (one_network("encoder/bits", "tanh"), "'tanh'"),
    ],
)  # fmt: skip
def test_a_header_that_does_not_fit_is_refused_by_name(bundle, tmp_path, header, message):
    path = rewrite(bundle.save(tmp_path / "model.safetensors"), header=header)
    with pytest.raises(ValueError, match=f"model.safetensors: .*{message}"):
        load(path)


def test_tensors_that_do_not_fit_are_refused_by_name(bundle, tmp_path):
    path = bundle.save(tmp_path / "model.safetensors")
    whole = path.read_bytes()
    for change, message in [
        ({"drop": ["encoder/bits/0/bias"]}, "'encoder/bits/0/bias' is missing"),
        (
            {"tensors": {"encoder/bits/1/bias": np.zeros(3, np.float32)}},
            "does not name: .*encoder/bits/1/bias",
        ),
        ({"tensors": {"encoder/bits/0/bias": np.zeros(5)}}, "has dtype float64, expected float32"),
        ({"tensors": {"encoder/bits/0/bias": np.zeros(6, np.float32)}}, r"encoder/bits/0: .*bias \(6,\)"),
        ({"tensors": {"encoder/bits/0/bias": np.full(5, np.nan, np.float32)}}, "not finite"),
        ({"tensors": {"statistics/bits/mean": np.zeros(20, np.float32)}}, r"\(20,\), expected \(21,\)"),
    ]:
        path.write_bytes(whole)
        with pytest.raises(ValueError, match=f"model.safetensors: .*{message}"):
            load(rewrite(path, **change))


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="other.safetensors: format is None"):
        load(tmp_path / "other.safetensors")


def test_a_failed_save_leaves_the_old_file(bundle, tmp_path):
    path = bundle.save(tmp_path / "model.safetensors")
    before = path.read_bytes()
    unserialisable = dataclasses.replace(bundle, config={"value": object()})
    with pytest.raises(TypeError):
        unserialisable.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_networks_that_have_no_place_are_refused(bundle):
    with pytest.raises(ValueError, match="'pair/bits/hardnet' has no place in a model of kind 'encoder_decoder'"):
        dataclasses.replace(bundle, networks={"pair/bits/hardnet": layers(np.random.default_rng(0), 21, 128)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": {}}, "of rows that are missing, expected sample/hardnet/input"),
        (
            {"embeddings": {"bits": np.zeros((2, 5), np.float32)}},
            r"sample/bits/embedding has shape .2, 5., expected .3, 5",
        ),
        (
            {"translations": {("hardnet", "bits"): np.zeros((3, 3))}},
            r"sample/hardnet/to/bits has shape .*expected .3, 21",
        ),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(bundle, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(bundle, sample=dataclasses.replace(bundle.sample, **changes))


@pytest.mark.parametrize("changes", [{"embedding_width": "5"}, {"embedding_width": True}, {"space_id": 7}])
def test_a_width_or_space_of_another_type_is_refused(bundle, changes):
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(bundle, **changes)
