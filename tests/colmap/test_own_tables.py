"""Our tables inside a COLMAP database."""

import sqlite3

import pytest

from xdesc_jax.colmap import own_tables
from xdesc_jax.descriptors import DescriptorSpec, get_spec

MINE = DescriptorSpec("mine", 7, normalized=False, hidden=(3,))


@pytest.fixture
def connection():
    connection = sqlite3.connect(":memory:")
    own_tables.create(connection)
    yield connection
    connection.close()


def test_what_is_written_is_read(connection):
    own_tables.write_image(connection, 3, MINE, None)
    own_tables.write_image(connection, 5, get_spec("brief"), "mine")
    own_tables.write_attribute(connection, "ratios", "{}")
    found = own_tables.read(connection, "map.db")
    assert found.specs == {3: MINE, 5: get_spec("brief")}
    assert found.translated_from == {5: "mine"}
    assert found.attributes == {"version": "1", "ratios": "{}"}


def test_a_database_without_them_says_nothing():
    connection = sqlite3.connect(":memory:")
    assert own_tables.read(connection, "map.db") == own_tables.OwnTables()
    connection.close()


def test_making_them_twice_keeps_what_is_there(connection):
    own_tables.write_image(connection, 3, MINE, None)
    own_tables.create(connection)
    assert own_tables.read(connection, "map.db").specs == {3: MINE}


def test_a_deleted_attribute_is_gone(connection):
    own_tables.write_attribute(connection, "model", "a")
    own_tables.delete_attribute(connection, "model")
    assert own_tables.read(connection, "map.db").attributes == {"version": "1"}


def test_specs_that_no_image_has_any_more_are_dropped(connection):
    own_tables.write_image(connection, 3, MINE, None)
    own_tables.write_image(connection, 3, get_spec("brief"), "mine")
    own_tables.drop_unused_specs(connection)
    assert connection.execute("SELECT name FROM xdesc_specs").fetchall() == [("brief",)]


@pytest.mark.parametrize("version", ["2", "one"])
def test_another_version_is_refused(connection, version):
    own_tables.write_attribute(connection, "version", version)
    with pytest.raises(ValueError, match=f"map.db: xdesc tables of version {version}, this package reads up to 1"):
        own_tables.read(connection, "map.db")


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"name": "mine", "width": 0}', '{"colour": 1}'])
def test_a_damaged_spec_is_named(connection, text):
    connection.execute("INSERT INTO xdesc_specs VALUES ('mine', ?)", (text,))
    with pytest.raises(ValueError, match="map.db: the spec of 'mine' is .*, expected a descriptor"):
        own_tables.read(connection, "map.db")


def test_an_image_without_a_spec_is_named(connection):
    connection.execute("INSERT INTO xdesc_images VALUES (3, 'mine', NULL)")
    with pytest.raises(ValueError, match="image 3 holds 'mine', of which the database has no spec"):
        own_tables.read(connection, "map.db")


def test_tables_of_that_name_with_other_columns_are_refused():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE xdesc_images (a)")
    with pytest.raises(ValueError, match="map.db: its xdesc tables cannot be read"):
        own_tables.read(connection, "map.db")
    connection.close()
