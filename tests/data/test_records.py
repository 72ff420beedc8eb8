"""The stage: every row once, choice of rows, finished work, killed runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.support.aligned_stores import write_store
from tests.support.in_use import check_refused_while_in_use
from xdesc_jax.cli import main
from xdesc_jax.data import open_source
from xdesc_jax.data.paired import PairedStores
from xdesc_jax.data.records import records
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.files.claim import beside

FORMATS = ["tfds", "npy"]


def all_rows(folder, split) -> dict[str, np.ndarray]:
    columns = [*RecordInfo.load(folder).specs, "keypoint"]
    source = open_source(folder, split, 7, columns, shuffle=False, remainder="pad")
    batches = list(source.epoch(0))
    return {k: np.concatenate([b[k][b["mask"]] for b in batches]) for k in batches[0]}


@pytest.mark.parametrize("format", FORMATS)
def test_every_valid_row_of_the_files_is_in_the_records_once_and_still_aligned(tmp_path, stores, format):
    info = records(tmp_path / "out", paired=tuple(stores), format=format, rows_per_shard=6, validation_share=0.5)
    found = {split: all_rows(info.path, split) for split in info.counts}
    with PairedStores(stores) as source:
        for photo, (name, rows) in enumerate(source.rows()):
            assert info.photos[photo] == name
            mine = [(s, np.flatnonzero(f["photo"] == photo)) for s, f in found.items() if (f["photo"] == photo).any()]
            assert len(mine) == (1 if len(rows["keypoint"]) else 0)
            for split, at in mine:
                at = at[np.argsort(found[split]["keypoint"][at, 0])]
                for column, values in rows.items():
                    np.testing.assert_array_equal(found[split][column][at], values)


def test_no_photo_is_in_both_splits(folder):
    train, validation = (set(all_rows(folder, split)["photo"]) for split in ("train", "validation"))
    assert train and validation and not train & validation
    assert train | validation == set(range(23))


@pytest.mark.parametrize("format", FORMATS)
def test_one_photo_gives_no_validation_and_says_so(tmp_path, format):
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, {"only.jpg": 9}) for n in ("brief", "sift"))
    info = records(tmp_path / "out", paired=paths, format=format)
    assert info.counts == {"train": 8, "validation": 0}
    with pytest.raises(ValueError, match="'validation' has no rows .*train: 8, validation: 0"):
        open_source(tmp_path / "out", "validation", 4)


def test_by_folder_all_rows_of_a_folder_are_in_one_split(tmp_path):
    counts = {f"{place}/{k}.jpg": 9 for place in "abcdef" for k in range(2)}
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, counts) for n in ("brief", "sift"))
    info = records(tmp_path / "out", paired=paths, format="npy", validation_share=0.5, split_by="folder")
    splits = {split: {info.photos[p][0] for p in all_rows(info.path, split)["photo"]} for split in info.counts}
    assert splits["train"] | splits["validation"] == set("abcdef") and not splits["train"] & splits["validation"]
    with pytest.raises(FileExistsError, match=r"another configuration \(split_by: folder -> "):
        records(tmp_path / "out", paired=paths, format="npy", validation_share=0.5)


def test_photos_of_one_folder_and_sets_of_one_photo_are_told_to_be_in_one_split(tmp_path, caplog):
    for name in ("own", "net"):
        (tmp_path / name).mkdir()
    stores = [
        write_store(tmp_path / folder / f"{name}.h5", name, {f"place/{photo}.jpg": 9 for photo in photos})
        for folder, photos in (("own", "ab"), ("net", "ab"))
        for name in ("brief", "sift")
    ]
    records(tmp_path / "one", paired=stores[:2], format="npy", split_by="folder")
    assert "all rows are in train: folders are not divided" in caplog.text
    for path in stores:
        write_store(path, path.stem, {"place/a.jpg": 9})
    caplog.clear()
    info = records(tmp_path / "two", paired=(tmp_path / "own", tmp_path / "net"), format="npy")
    assert len(info.photos) == 2 and "all rows are in train: photos are not divided" in caplog.text


def test_by_folder_a_photo_in_none_is_refused_before_any_work(tmp_path):
    counts = {"a/1.jpg": 9, "loose.jpg": 9}
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, counts) for n in ("brief", "sift"))
    with pytest.raises(ValueError, match="photo 'loose.jpg' lies in no folder"):
        records(tmp_path / "out", paired=paths, format="npy", split_by="folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["brief.h5", "sift.h5"]


def test_rows_per_photo_are_limited_by_a_draw_that_depends_on_the_seed(tmp_path, stores):
    found = []
    for seed in (0, 0, 1):
        out = tmp_path / f"{len(found)}"
        info = records(out, paired=tuple(stores), format="npy", max_rows_per_photo=3, seed=seed, validation_share=0)
        assert info.counts == {"train": 6, "validation": 0}
        rows = all_rows(out, "train")
        assert sorted(rows["photo"]) == [0, 0, 0, 2, 2, 2]
        found.append(set(map(tuple, rows["keypoint"])))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("format", FORMATS)
def test_equal_settings_give_equal_files(tmp_path, stores, format):
    a = records(tmp_path / "a", paired=tuple(stores), format=format, rows_per_shard=6)
    records(tmp_path / "b", paired=tuple(stores), format=format, rows_per_shard=6)
    for name in a.files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_finished_records_are_kept_and_others_refused_unless_told(tmp_path, stores, capsys):
    out = tmp_path / "out"
    made = records(out, paired=tuple(stores), format="npy")
    stamp = (out / "records.json").stat().st_mtime_ns
    assert records(out, paired=tuple(stores), format="npy") == made
    assert (out / "records.json").stat().st_mtime_ns == stamp
    assert "up to date" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match=r"made with another configuration \(seed: 0 -> 1\)"):
        records(out, paired=tuple(stores), format="npy", seed=1)
    assert records(out, paired=tuple(stores), format="npy", seed=1, overwrite=True).config["seed"] == 1


def test_records_that_an_earlier_deal_made_are_read_and_told_from_those_of_this_one(tmp_path, stores):
    options = {"paired": tuple(stores), "format": "npy", "rows_per_shard": 6}
    made = records(tmp_path / "out", **options)
    config = {key: value for key, value in made.config.items() if key != "deal"}
    dataclasses.replace(made, config=config).save()
    earlier = RecordInfo.load(tmp_path / "out")
    assert made.config["deal"] == 2 and earlier.config == config and earlier.config_hash != made.config_hash
    assert len(all_rows(tmp_path / "out", "train")["photo"]) == made.counts["train"]
    with pytest.raises(FileExistsError, match=r"another configuration \(deal: None -> 2\)"):
        records(tmp_path / "out", **options)
    assert records(tmp_path / "out", overwrite=True, **options) == made


def test_a_folder_may_be_called_like_markup(tmp_path, stores, capsys):
    for _ in range(2):
        records(tmp_path / "[" / "x]", paired=tuple(stores), format="npy")
    printed = capsys.readouterr().out
    assert printed.count("/[/x]\n") == 1 and "/[/x] (up to date)" in printed


def test_a_folder_that_is_not_records_is_never_replaced(tmp_path, stores):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="exists and is not a records folder"):
        records(tmp_path / "mine", paired=tuple(stores), format="npy", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_that_dies_leaves_no_folder_and_the_next_one_ends_as_an_undisturbed_one(
    tmp_path, stores, format, monkeypatch
):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RecordInfo, "save", die)
        with pytest.raises(KeyboardInterrupt):
            records(tmp_path / "out", paired=tuple(stores), format=format)
    assert not (tmp_path / "out").exists()
    resumed = records(tmp_path / "out", paired=tuple(stores), format=format)
    straight = records(tmp_path / "straight", paired=tuple(stores), format=format)
    for name in straight.files:
        assert (resumed.path / name).read_bytes() == (straight.path / name).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "straight"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_share": 1.0}, "validation share is 1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"max_rows_per_photo": 0}, "max_rows_per_photo is 0"),
        ({"rows_per_shard": 0}, "rows_per_shard is 0"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path, stores, options, message):
    with pytest.raises(ValueError, match=message):
        records(tmp_path / "out", paired=tuple(stores), **options)


def test_files_without_a_valid_row_make_no_records(tmp_path):
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, {"a": 0, "b": 0}) for n in ("brief", "sift"))
    with pytest.raises(ValueError, match="none of the 2 photos has a valid row"):
        records(tmp_path / "out", paired=paths)
    assert not (tmp_path / "out").exists()


def test_the_command_line_tells_what_is_wrong_and_returns_2(tmp_path, stores, capsys):
    other = write_store(tmp_path / "b.h5", "sift", {"a.jpg": 5})
    assert main(["records", str(tmp_path / "out"), "--paired", str(stores[0]), str(other)]) == 2
    assert "'sub/b.jpg' is in" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_records_started_twice_say_who_makes_them(tmp_path, stores, capsys):
    out = tmp_path / "made" / "out"
    check_refused_while_in_use(["records", out, "--paired", *stores, "--format", "npy"], beside(out), out, capsys)
