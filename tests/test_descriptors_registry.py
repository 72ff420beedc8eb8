"""Descriptor specs, forms, and the registry."""

import numpy as np
import pytest

from xdesc_jax import descriptors
from xdesc_jax.descriptors import (
    DescriptorSpec,
    binary_spec,
    canonical,
    embedding_spec,
    from_stored,
    get_entry,
    get_spec,
    in_stored_dtype,
    pack_bits,
    register,
    registered,
    resolve,
    row_norms,
    stored,
    unit_rows,
    unpack_bits,
)


@pytest.fixture
def registry(monkeypatch):
    """A registry that the test may change."""
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))


def unit(n: int, width: int) -> np.ndarray:
    rows = np.abs(np.random.default_rng(n).normal(size=(n, width)))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


# --- Bits ------------------------------------------------------------------------------------------------


def test_bit_k_is_bit_k_mod_8_of_byte_k_div_8():
    bits = np.zeros((1, 13), bool)
    bits[0, [0, 3, 9]] = True
    assert pack_bits(bits).tolist() == [[1 + 8, 2]]


@pytest.mark.parametrize("width", [1, 8, 13, 512])
def test_unpacking_undoes_packing(width):
    bits = np.random.default_rng(width).random((5, width)) < 0.5
    np.testing.assert_array_equal(unpack_bits(pack_bits(bits), width), bits)


def test_hamming_distance_is_the_same_on_packed_bits():
    a, b = np.random.default_rng(0).random((2, 7, 509)) < 0.5
    on_bytes = np.bitwise_count(pack_bits(a) ^ pack_bits(b)).sum(axis=1)
    np.testing.assert_array_equal(on_bytes, (a != b).sum(axis=1))


def test_packing_other_types_is_refused():
    with pytest.raises(ValueError, match="dtype float32, expected bool"):
        pack_bits(np.zeros((2, 8), np.float32))
    with pytest.raises(ValueError, match="dtype int64, expected uint8"):
        unpack_bits(np.zeros((2, 1), np.int64), 8)


# --- Forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registered())
def test_stored_form_returns_to_the_canonical_one(name):
    spec = get_spec(name)
    if spec.binary:
        rows = np.random.default_rng(0).random((7, spec.width)) < 0.5
    else:
        rows = unit(7, spec.width) * (1 if spec.normalized else 9)
    on_disk = stored(rows, spec)
    assert (on_disk.shape, on_disk.dtype) == ((7, spec.stored_width), spec.stored_dtype)
    back = from_stored(on_disk, spec)
    assert back.dtype == (bool if spec.binary else np.float32)
    # Rounding to 1/512 moves a value by 1/1024, and the norm by little.
    np.testing.assert_allclose(back, rows, atol=2e-3 if spec.storage_scale != 1 else 0, rtol=1e-6)


@pytest.mark.parametrize("name", ["colmap-sift", "opencv-sift"])
def test_stored_values_are_rounded_to_the_nearest_and_not_cut(name):
    spec = get_spec(name)
    steps = np.array([0.4, 0.6, 7.25, 7.75, 99.49, 99.51, 254.6, 255.4])
    rows = np.zeros((1, 128), np.float32)
    rows[0, :8] = steps / 512
    assert stored(rows, spec)[0, :8].tolist() == [0, 1, 7, 8, 99, 100, 255, 255]


def test_stored_form_is_clipped_to_a_byte():
    assert stored(
        np.array([[1.0, 0.1]]), DescriptorSpec("a", 2, storage_dtype="uint8", storage_scale=512)
    ).tolist() == [[255, 51]]


def test_0_to_255_floats_and_unit_floats_are_one_descriptor():
    spec = get_spec("opencv-sift")
    rows = unit(5, 128)
    np.testing.assert_allclose(canonical(rows * 512, spec), rows, atol=1e-6)
    np.testing.assert_allclose(canonical(rows, spec), rows, atol=1e-6)


def test_zero_rows_stay_zero():
    for name in ("sift", "colmap-sift", "tfeat"):
        spec = get_spec(name)
        assert not canonical(np.zeros((2, 128), spec.stored_dtype), spec).any()
    assert not unit_rows(np.zeros((2, 5))).any()


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("sift", np.zeros((3, 64), np.float32), r"shape \(3, 64\), but 'sift' expects \[N, 128\]"),
        ("sift", np.zeros(128, np.float32), r"shape \(128,\)"),
        ("sift", np.full((3, 128), 1, np.float32), "row 0 has norm 11.31, but 'sift' expects unit-length"),
        ("sift", np.zeros((3, 128), np.uint8), "dtype is uint8, but 'sift' expects floats"),
        ("sift", np.zeros((3, 128), np.int32), "dtype is int32"),
        ("tfeat", np.full((3, 128), np.nan, np.float32), "row 0 of 'tfeat' holds a value that is not finite"),
        (
            "brief",
            np.zeros((3, 512), np.uint8),
            r"dtype is uint8, but 'brief' expects bool \(packed bits need",
        ),
        ("brief", np.zeros((3, 64), np.uint8), r"expects \[N, 512\]"),
        ("brief", np.zeros((3, 512), np.float32), "dtype is float32, but 'brief' expects bool"),
    ],
)
def test_rows_of_another_form_are_refused(name, rows, message):
    with pytest.raises(ValueError, match=message):
        canonical(rows, get_spec(name))


def test_packed_rows_need_packed_and_a_binary_descriptor():
    packed = np.zeros((3, 64), np.uint8)
    assert canonical(packed, get_spec("brief"), packed=True).shape == (3, 512)
    with pytest.raises(ValueError, match="packed=True is for binary"):
        canonical(np.zeros((3, 128), np.uint8), get_spec("colmap-sift"), packed=True)


def test_errors_begin_with_the_place():
    with pytest.raises(ValueError, match="^a.h5: 'b.jpg': "):
        canonical(np.zeros((1, 2), np.float32), get_spec("sift"), where="a.h5: 'b.jpg'")


# --- Specs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registered())
def test_specs_round_trip_as_json(name):
    spec = get_spec(name)
    assert DescriptorSpec.from_dict(spec.to_dict()) == spec


def test_spec_with_unknown_fields_is_refused():
    with pytest.raises(ValueError, match="'a' has unknown fields .'colour'."):
        DescriptorSpec.from_dict({"name": "a", "width": 3, "colour": 1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a b"}, "without '/' or blanks"),
        ({"name": ""}, "non-empty"),
        ({"width": 0}, "width is 0"),
        ({"kind": "bits"}, "expected 'real' or 'binary'"),
        ({"kind": "binary"}, "normalized=False"),
        ({"name": 7}, "name 7"),
        ({"width": 3.5}, "width is 3.5, expected a whole number"),
        ({"width": 10**400}, "width is 1000"),
        ({"normalized": {"inner": True}}, "normalized is .*, expected True or False"),
        ({"storage_dtype": "float16"}, "storage_dtype is 'float16'"),
        ({"storage_scale": float("nan")}, "storage_scale is nan, expected a number above 0"),
        ({"hidden": (16, -1)}, "hidden is .16, -1., expected widths"),
        ({"output": ["none"]}, "output is .'none'., expected"),
    ],
)
def test_impossible_specs_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        DescriptorSpec(**({"name": "a", "width": 3} | fields))


def test_embeddings_of_two_spaces_are_two_descriptors():
    a, b = embedding_spec("1a2b", 128), embedding_spec("3c4d", 128)
    assert a != b and a.is_embedding and a.name == "embedding:1a2b"


# --- Registry --------------------------------------------------------------------------------------------


def test_own_descriptor_is_known_by_name(registry):
    spec = register(DescriptorSpec("mine", 96), len)
    assert get_spec("mine") == spec and "mine" in registered()
    entry = get_entry("mine")
    assert (entry.source, entry.weighted) == ("patch", False)
    assert resolve(entry.describe) is len


def test_descriptor_from_files_alone_needs_no_function(registry):
    register(binary_spec("orb256", 256))
    assert get_entry("orb256").describe is None


def test_name_never_changes_its_meaning(registry):
    register(DescriptorSpec("mine", 96), len)
    register(DescriptorSpec("mine", 96), len)
    with pytest.raises(ValueError, match="'mine' is registered as"):
        register(DescriptorSpec("mine", 97), len)


def test_unknown_name_is_answered_with_near_ones():
    with pytest.raises(ValueError, match="unknown descriptor 'sfit'; did you mean .*sift"):
        get_spec("sfit")


def test_names_that_are_not_near_are_not_suggested():
    with pytest.raises(ValueError, match=r"^unknown descriptor 'mydesc' \(known: "):
        get_spec("mydesc")


def test_implementations_of_sift_are_different_descriptors():
    names = ("sift", "sift-kornia05", "colmap-sift", "opencv-sift")
    assert len({get_spec(name) for name in names}) == 4


def test_function_is_found_by_module_and_name():
    assert resolve("numpy:zeros") is np.zeros


# --- Rows that cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-30, 1e-44, 1e30, 0.9])
def test_rows_of_another_length_are_refused_however_small(factor):
    rows = unit_rows(np.random.default_rng(0).normal(size=(3, 128)))
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.concatenate([rows[:1], (rows[1:].astype(np.float64) * factor).astype(np.float32)])
    with pytest.raises(ValueError, match="file: row 1 has norm .* but 'sift' expects unit-length floats"):
        canonical(scaled, get_spec("sift"), where="file")
    zeros = np.zeros((2, 128), np.float32)
    assert not canonical(zeros, get_spec("sift")).any()


@pytest.mark.parametrize("factor", [1e-43, 1e-30, 1e-22, 1.0, 1e20, 1e30])
def test_lengths_are_those_of_exact_arithmetic(factor):
    rows = (np.random.default_rng(0).normal(size=(5, 9)) * factor).astype(np.float32)
    np.testing.assert_allclose(row_norms(rows), np.linalg.norm(rows.astype(np.float64), axis=1), rtol=1e-6, atol=2e-45)


@pytest.mark.parametrize("name", ["sift", "opencv-sift", "tfeat"])
def test_unpacked_bits_are_not_taken_for_floats(name):
    bits = np.random.default_rng(0).random((4, 512)) < 0.5
    with pytest.raises(ValueError, match="file: (row 0 has norm|values are at most)"):
        canonical(bits.view(np.float32), get_spec(name), where="file")


def test_unpacked_bits_are_not_taken_for_bytes_of_sift():
    bits = np.random.default_rng(0).random((4, 128)) < 0.5
    with pytest.raises(ValueError, match="file: bytes are at most 1, but rows of 'colmap-sift' have values over 23"):
        canonical(bits.view(np.uint8), get_spec("colmap-sift"), where="file")
    assert not canonical(np.zeros((3, 128), np.uint8), get_spec("colmap-sift")).any()


# --- Rows of another descriptor, at any number of rows ---------------------------------------------------------


def root_sift(n, seed=0):
    """Rows as OpenCV keeps them, and their RootSIFT: square roots of what is of L1 length 1, float32."""
    x = np.random.default_rng(seed).gamma(0.6, size=(n, 128))
    x = np.minimum(x / np.linalg.norm(x, axis=1, keepdims=True), 0.2)
    raw = np.rint(512 * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    return raw, np.sqrt(raw / raw.sum(axis=1, keepdims=True))


def rows_like(name, n):
    """Rows of which only files of descriptors like `name` are made."""
    rng = np.random.default_rng(1)
    raw, root = root_sift(n)
    made = {"opencv-sift": raw, "colmap-sift": np.rint(512 * root).astype(np.uint8), "sift": root}
    made["hardnet"] = unit_rows(rng.normal(size=(n, 128)))
    made["tfeat"] = np.tanh(2 * rng.normal(size=(n, 128))).astype(np.float32)
    return made[name]


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize(
    ("said", "held", "message"),
    [
        ("opencv-sift", "sift", "row 0 has norm 1, but 'opencv-sift' .* of norm 512; are they 'colmap-sift' or 'sift'"),
        ("opencv-sift", "hardnet", "row 0 has norm 1, .*; are they .*'hardnet' or"),
        ("sift", "opencv-sift", r"row 0 has norm 51\d\.?\d?, but 'sift' expects unit.*; are they 'opencv-sift'\?"),
        ("sift", "colmap-sift", r"dtype is uint8, but 'sift' expects floats; are they 'colmap-sift'\?"),
        ("sift", "hardnet", "row 0 holds -0.*, but 'sift' has no value .*; are they .*'hardnet' or 'hardnet-xdesc'"),
        ("sift", "tfeat", "row 0 has norm [789].*, but 'sift' expects unit-length floats$"),
        ("colmap-sift", "hardnet", "row 0 holds -0.*, but 'colmap-sift' has no value below 0; are they .*'hardnet'"),
        ("hardnet", "opencv-sift", r"row 0 has norm 51.*; are they 'opencv-sift'\?"),
        ("hardnet", "colmap-sift", r"dtype is uint8.*; are they 'colmap-sift'\?"),
        ("tfeat", "sift", "row 0 has norm 1, but 'tfeat' .*; are they 'colmap-sift' or 'sift'"),
        ("tfeat", "opencv-sift", r"row 0 has norm 51.*, but 'tfeat' .*; are they 'opencv-sift'\?"),
    ],
)
def test_rows_of_another_descriptor_are_refused_and_named(said, held, message, n):
    with pytest.raises(ValueError, match=f"^map.h5: {message}"):
        canonical(rows_like(held, n), get_spec(said), where="map.h5", kept=True)


@pytest.mark.parametrize("held", ["opencv-sift", "colmap-sift", "sift", "hardnet", "tfeat"])
def test_rows_of_the_descriptor_itself_are_taken(held):
    rows = rows_like(held, 7)
    found = from_stored(rows, get_spec(held))
    np.testing.assert_allclose(found, rows if held == "tfeat" else unit_rows(rows), atol=1e-6)


@pytest.mark.parametrize("name, norm", [("vgg", 3.7), ("boostdesc-lbgm", 2.6), ("tfeat", 9.0)])
def test_rows_without_unit_length_are_taken_unless_all_have_it(name, norm):
    rows = np.abs(unit_rows(np.random.default_rng(0).normal(size=(5, get_spec(name).width))))
    np.testing.assert_array_equal(canonical(rows * norm, get_spec(name)), rows * norm)
    mixed = rows * np.linspace(0.9, norm, 5, dtype=np.float32)[:, None]  # as translations may be
    np.testing.assert_array_equal(canonical(mixed, get_spec(name)), mixed)
    with pytest.raises(ValueError, match=f"row 0 has norm 1, but '{name}' expects floats of norms up to .*, not all 1"):
        canonical(rows, get_spec(name))
    with pytest.raises(ValueError, match="row 4 has norm 30"):
        canonical(np.concatenate([rows[:4] * norm, rows[4:] * 30]), get_spec(name))


def test_a_canonical_array_in_memory_may_be_of_unit_length():
    root = root_sift(3)[1]
    np.testing.assert_allclose(canonical(root, get_spec("opencv-sift")), root, atol=1e-6)


def test_bytes_that_no_sift_has_are_refused_unless_they_meet_their_like():
    rows = np.random.default_rng(0).integers(0, 256, (3, 128), np.uint8)
    with pytest.raises(ValueError, match="row 0 has norm 1[67].*, but 'colmap-sift' expects"):
        canonical(rows, get_spec("colmap-sift"))
    assert canonical(rows, get_spec("colmap-sift"), loose=True).shape == (3, 128)


def test_root_sift_becomes_the_bytes_of_colmap():
    root = np.concatenate([root_sift(5)[1], np.zeros((1, 128), np.float32)])
    spec = get_spec("colmap-sift")
    expected = np.minimum(np.rint(512 * root.astype(np.float64)), 255)
    for given in (root, root.astype(np.float64), np.rint(512 * root)):
        found = in_stored_dtype(given, spec)
        assert found.dtype == np.uint8
        np.testing.assert_allclose(found, expected, atol=1)
    root[2, 5] = np.nan
    found = in_stored_dtype(root, spec)
    assert found.dtype == np.float32 and np.isnan(found[2, 5]) and np.isfinite(found[[0, 1, 3, 4]]).all()


def test_bytes_of_opencv_become_its_floats():
    raw = root_sift(5)[0]
    found = in_stored_dtype(raw.astype(np.uint8), get_spec("opencv-sift"))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, raw)
