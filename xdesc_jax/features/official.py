"""The stage `xdesc weights install`: weights that a descriptor's authors published -> the user's data folder.

In: a name of `RELEASES`, and perhaps the release file. Out: `<data folder>/weights/<name>.safetensors`, where
`describe` finds it, with its origin in the header. A file is taken only if it is the very one that the authors
published. Imports no jax itself; the network's loader, which checks the arrays, does.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.descriptors import get_entry, registered, resolve
from xdesc_jax.features.weights import is_torch_file, read_arrays, require_torch, write_arrays
from xdesc_jax.files import dry_run
from xdesc_jax.files.whole import making

DATA = "XDESC_DATA"  # names another data folder
TIMEOUT_S = 30.0  # without any byte
CHUNK = 1 << 18
OWN = "-xdesc"  # ends the names of networks that this package trains itself
LARGEST = 64 << 20  # bytes; no release comes near it


@dataclasses.dataclass(frozen=True)
class Release:
    """A file as its authors published it.

    Attributes:
        file: its name.
        address: where it is.
        licence: as its repository states it.
        size: in bytes, where known; a blob id stands for the size, too.
        blob: git blob id, where known.
        arrays: `arrays_digest` of what it holds, where known.
    """

    file: str
    address: str
    licence: str
    size: int | None = None
    blob: str | None = None
    arrays: str | None = None


RELEASES = {
    # Liberty, with augmentation.
    "hardnet": Release(
        "checkpoint_liberty_with_aug.pth",
        "https://github.com/DagnyT/hardnet/raw/master/pretrained/train_liberty_with_aug/checkpoint_liberty_with_aug.pth",
        "MIT",
        blob="c1b2a5f4e79a5f3e50ec9a1ac98a428965cef37b",
    ),
    "sosnet": Release(
        "sosnet_32x32_liberty.pth",
        "https://github.com/yuruntian/SOSNet/raw/master/sosnet-weights/sosnet_32x32_liberty.pth",
        "none stated",
        blob="e1654f36def583bb942cccbe149b0162d57d3d2a",
    ),
    # Known by its arrays alone; the commit is the one that holds the file's only version.
    "tfeat": Release(
        "tfeat-liberty.params",
        "https://github.com/vbalnt/tfeat/raw/d5b62a693c876979c629dbab0e5768acb0cca38d/pretrained-models/tfeat-liberty.params",
        "MIT",
        arrays="48575221ad67bb67c71e2a808a957a98feb991171f0205c9561bc367eb1d6c7d",
    ),
}


def install(name: str, *, file: Path | None = None, overwrite: bool = False) -> Path:
    """Installs the official weights of a learned descriptor, for all that uses it by name.

    Downloads the file of the authors' release, or takes it from --file where there is no network; checks that it
    is that file, converts it (PyTorch files need the extra 'torch') and keeps it in your data folder, or in
    XDESC_DATA where that is set.

    Args:
        name: hardnet, sosnet or tfeat.
        file: the release file, if you have it already.
        overwrite: install again what is installed and sound.

    Returns:
        The installed file.

    Raises:
        FileNotFoundError: no such `file`.
        ConnectionError: the download failed; says what to fetch, from where, and how to hand it over.
        ValueError: an unknown name, another file than the published one, or torch is not installed.
    """
    release = _release(name)
    target = installed_path(name)
    with console.status("looking for what is installed"):
        sound = file is None and not overwrite and _is_sound(name, target)
    if sound:
        dry_run.output(target, dry_run.FINISHED)
        console.up_to_date(target)
        return target
    making(target)
    console.settings(f"xdesc weights install {name}", {"from": file or release.address, "to": target})
    if file is not None:
        return _take(name, release, Path(file), target)
    if is_torch_file(Path(release.file)):
        require_torch(release.file)  # what is missing is better said before the download
    with tempfile.TemporaryDirectory(prefix="xdesc-") as folder:
        return _take(name, release, _download(name, release, Path(folder) / release.file), target)


def data_folder() -> Path:
    """The folder XDESC_DATA, or else the platform's folder for a user's data."""
    if os.environ.get(DATA):
        return Path(os.environ[DATA])
    import platformdirs

    return platformdirs.user_data_path("xdesc-jax", appauthor=False)


def installed_path(name: str) -> Path:
    """Where the official weights of a descriptor lie once they are installed."""
    return data_folder() / "weights" / f"{name}.safetensors"


def weight_file(name: str, given: Path | str | None = None) -> Path | None:
    """The weight file that a descriptor is computed with; None for one without weights.

    Args:
        name: a registered descriptor.
        given: the user's file, which comes first; then the one that ships with the package under that name, then
            the installed official one (`xdesc weights install`).

    Raises:
        ValueError: an unknown name, weights that are not wanted, or none anywhere; says how to get them.
    """
    if not get_entry(name).weighted:
        if given is not None:
            raise ValueError(f"descriptor {name!r} has no weights, but {given} was given")
        return None
    if given is not None:
        return Path(given)
    if (shipped := pretrained.find(name, "weights")) is not None:
        return shipped
    by_hand = f"give their file with --weights {name}=FILE"
    if name not in RELEASES:
        raise ValueError(f"descriptor {name!r} has weights; none ship with this installation, so {by_hand}")
    if (installed := installed_path(name)).is_file():
        return installed
    own = f"; this package's own network is {name + OWN!r}" if name + OWN in registered() else ""
    raise ValueError(
        f"descriptor {name!r} means the official weights, which are not part of this package: install them with "
        f"`xdesc weights install {name}`, or {by_hand}{own}"
    )


def blob_id(path: Path) -> str:
    """Git's id of a file's content: SHA-1 of 'blob <size>', a zero byte, and the content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, shapes and float32 values, sorted by name: the same in any file format."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], "<f4")
        digest.update(f"{name} {list(array.shape)}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _release(name: str) -> Release:
    if name in RELEASES:
        return RELEASES[name]
    near = difflib.get_close_matches(name, RELEASES, n=3, cutoff=0.4)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise ValueError(f"no official weights of {name!r} are known{hint} (known: {', '.join(RELEASES)})")


def _is_sound(name: str, path: Path) -> bool:
    """Whether `path` can be loaded; one that cannot is installed again."""
    if not path.exists():
        return False
    try:
        _load(name, path)
    except ValueError as error:
        console.warn(f"{error}; it is installed again")
        return False
    return True


def _load(name: str, path: Path) -> None:
    load = get_entry(name).load
    assert load is not None  # every name of RELEASES has one
    resolve(load)(path)


def _take(name: str, release: Release, source: Path, target: Path) -> Path:
    """Checks and converts a release file."""
    if not source.is_file():
        raise FileNotFoundError(f"{source}: no such weight file")
    size, blob = source.stat().st_size, blob_id(source)
    instead = f"to use it all the same, give it where it is needed: --weights {name}=FILE"
    if release.size not in (None, size):
        raise ValueError(f"{source}: has {size} bytes, {release.file} has {release.size}; {instead}")
    if release.blob not in (None, blob):
        raise ValueError(
            f"{source}: has git blob id {blob} ({size} bytes), {release.file} of {release.address} has "
            f"{release.blob}: cut short, or another file; {instead}"
        )
    with console.status(f"checking {source}"):
        _load(name, source)  # refuses another network
    arrays = {key: array for key, array in read_arrays(source).items() if array.dtype.kind == "f"}
    digest = arrays_digest(arrays)
    if release.arrays not in (None, digest):
        raise ValueError(
            f"{source}: its arrays have SHA-256 {digest}, those of {release.file} have {release.arrays}; {instead}"
        )
    origin = {"size": size, "blob": blob, "arrays": digest}
    known = {"name": name, **dataclasses.asdict(release), **origin}
    write_arrays(target, arrays, {key: str(value) for key, value in known.items()})
    console.figures(f"weights of {name}", {"bytes": size, "licence": release.licence})
    console.result(target)
    return target


def _download(name: str, release: Release, path: Path) -> Path:
    """Fetches the release file to `path`.

    Raises:
        ConnectionError: it cannot be fetched whole.
    """
    try:
        # Some servers turn urllib's own name away.
        request = urllib.request.Request(release.address, headers={"User-Agent": "xdesc-jax"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response, path.open("wb") as out:
            expected = response.headers.get("Content-Length")
            total = int(expected) if expected is not None and expected.isdigit() else None
            done = 0
            with console.progress_bar("bytes") as bar:
                task = bar.add_task(release.file, total=total)
                while block := response.read(CHUNK):
                    out.write(block)
                    done += len(block)
                    bar.advance(task, len(block))
                    if done > LARGEST:
                        raise ConnectionError(f"more than {LARGEST} bytes")
        if total is not None and done < total:
            raise ConnectionError(f"cut short at {done} of {total} bytes")
    except (OSError, HTTPException) as error:
        raise ConnectionError(
            f"the official weights of {name!r} cannot be downloaded ({error}); where there is a network, fetch "
            f"{release.file} from {release.address}, then run: xdesc weights install {name} --file {release.file}"
        ) from error
    return path
