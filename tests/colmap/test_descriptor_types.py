"""Rows that COLMAP has a type for: as pycolmap itself writes and reads them."""

import dataclasses

import numpy as np
import pytest

from tests.support.databases import edit, make_4, sift_rows
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.colmap.descriptor_types import OTHER_TYPE, type_name, type_of, typed_spec
from xdesc_jax.descriptors import get_spec, unit_rows

TYPES = pycolmap.FeatureExtractorType
ALIKED = {"aliked-n16rot": TYPES.ALIKED_N16ROT, "aliked-n32": TYPES.ALIKED_N32}


def aliked_rows(n, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, 128)))


@pytest.fixture
def database(tmp_path):
    """A photo for each type that COLMAP knows, with as many rows as its number and 3; `short.png` has bytes too few."""
    path = tmp_path / "map.db"
    with pycolmap.Database.open(path) as db:
        camera = db.write_camera(pycolmap.Camera(model="SIMPLE_PINHOLE", width=64, height=48, params=[50, 32, 24]))
        for name, kind in [*((k.lower(), k) for k in TYPES.__members__), ("short.png", "ALIKED_N32")]:
            kind, n = TYPES.__members__[kind], int(TYPES.__members__[kind]) + 3
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            db.write_keypoints(image, np.ones((n, 2), np.float32))
            if kind in (TYPES.SIFT, TYPES.UNDEFINED) or name == "short.png":
                rows = sift_rows(n)
            else:
                rows = pycolmap.FeatureDescriptorsFloat(type=kind, data=aliked_rows(n, seed=n)).to_bytes().data
            db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=rows))
    return path


@pytest.mark.parametrize("name", ALIKED)
def test_typed_rows_are_read_as_the_descriptor(database, name):
    kind = ALIKED[name]
    with DatabaseReader(database) as reader:
        assert reader.spec(kind.name.lower()) == get_spec(name)
        rows = reader.descriptors(kind.name.lower())
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, aliked_rows(int(kind) + 3, seed=int(kind) + 3))


def test_types_without_a_descriptor_of_ours_are_told_by_name(database):
    with DatabaseReader(database) as reader:
        assert reader.spec("loma_b") is None and reader.spec("short.png") is None
        with pytest.raises(
            ValueError, match=r"'loma_b128' holds \(type LOMA_B128, 512 bytes\); name it by --descriptor"
        ):
            reader.descriptors("loma_b128")
        with pytest.raises(ValueError, match=r"'short.png' holds \(type ALIKED_N32, 128 bytes\)"):
            reader.descriptors("short.png")


def test_numbers_and_names_are_pycolmaps():
    assert {type_name(int(kind)): int(kind) for kind in TYPES.__members__.values()} == {
        name: int(kind) for name, kind in TYPES.__members__.items()
    }
    assert type_name(77) == "77" and type_name(-2) == "-2"


@pytest.mark.parametrize("name", [*ALIKED, "aliked-n16", "hardnet"])
def test_rows_are_written_with_their_type_as_pycolmap_packs_them(tmp_path, name):
    rows, kind = aliked_rows(5), ALIKED.get(name, TYPES.UNDEFINED)
    with DatabaseWriter(make_4(tmp_path / "map.db"), tmp_path / "out.db") as writer:
        first = sorted(writer.ids)[0]
        writer.set_descriptors(first, rows, get_spec(name), "colmap-sift")
    with pycolmap.Database.open(tmp_path / "out.db") as db:
        found = db.read_descriptors(writer.ids[first])
    packed_as = TYPES.ALIKED_N16ROT if kind == TYPES.UNDEFINED else kind  # pycolmap packs no others
    assert found.type == kind
    expected = pycolmap.FeatureDescriptorsFloat(type=packed_as, data=rows).to_bytes()
    np.testing.assert_array_equal(found.data, expected.data)
    with DatabaseReader(tmp_path / "out.db") as reader:
        assert (reader.spec(first), reader.translated_from(first)) == (get_spec(name), "colmap-sift")


def test_a_name_with_rows_of_another_form_has_no_type():
    assert typed_spec(1, 512) == get_spec("aliked-n16rot") and typed_spec(1, 256) is None
    for change in ({"width": 64}, {"storage_dtype": "uint8"}):
        assert type_of(dataclasses.replace(get_spec("aliked-n16rot"), **change)) == OTHER_TYPE


@pytest.mark.parametrize("anew", [TYPES.SIFT, TYPES.ALIKED_N32, TYPES.LOMA_B])
def test_what_colmap_extracted_anew_is_told_by_its_type(tmp_path, anew):
    """Our table still names what lay there before."""
    with DatabaseWriter(make_4(tmp_path / "map.db"), tmp_path / "out.db") as writer:
        first, other = sorted(writer.ids)[:2]
        for name in (first, other):
            writer.set_descriptors(name, aliked_rows(5), get_spec("aliked-n16rot"), "colmap-sift")
    rows = sift_rows(5).tobytes() if anew == TYPES.SIFT else aliked_rows(5, seed=1).tobytes()
    edit(
        tmp_path / "out.db", "UPDATE descriptors SET type = ?, cols = ?, data = ? WHERE image_id = ?",
        int(anew), len(rows) // 5, rows, writer.ids[first],
    )  # fmt: skip
    held = {TYPES.SIFT: get_spec("colmap-sift"), TYPES.ALIKED_N32: get_spec("aliked-n32")}.get(anew)
    with DatabaseReader(tmp_path / "out.db") as reader:
        assert (reader.spec(first), reader.translated_from(first)) == (held, None)
        assert (reader.spec(other).name, reader.translated_from(other)) == ("aliked-n16rot", "colmap-sift")
