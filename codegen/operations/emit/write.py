"""Write bundles, as atomically as a file system allows. Unchanged files are left alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import keyword
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from shardwright.codegen.operations.emit.owner import check_owner, owner_of
from shardwright.codegen.operations.emit.package import PACKAGE_FILE, is_package, package_text
from shardwright.codegen.spec import manifest
from shardwright.codegen.spec.config import Config
from shardwright.codegen.spec.description import IMPORTED
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import (
    SUPPORT,
    Entry,
    GroupEntry,
    Manifest,
    SupportEntry,
    read_manifest,
    sha256,
)
from shardwright.codegen.spec.matmul import Operation
from shardwright.codegen.text.support import support_files, versions
from shardwright.ir.errors import InputError, wrong_type


def bundle_folder(path: object, example: str) -> Path:
    """Return the folder that a user names for a bundle. Raises InputError for a name without a
    folder, unless the current folder already has bundles, because shared files are written next to
    the bundle."""
    if not isinstance(path, str | Path):
        raise wrong_type(path, Path, f'"{example}"', "path")
    folder = Path(os.path.abspath(path))
    if not str(path) or (len(Path(path).parts) < 2 and not is_root(folder.parent)):
        raise InputError(
            "the path must be the folder of all bundles, then the name of this bundle",
            argument="path",
            got=str(path) or repr(path),
            expected=f'a folder and a name, for example "{example}"',
        )
    return folder


def is_root(folder: Path) -> bool:
    """Return whether a folder has bundles."""
    return (folder / manifest.FILE).is_file() and _is_ours(folder / PACKAGE_FILE)


def write_bundle(
    folder: Path, description: Operation, files: Mapping[str, str]
) -> tuple[Path, ...]:
    """Write a bundle into a folder that a user gave as `path`; errors name that argument. Otherwise
    as `write_bundles`."""
    try:
        return write_bundles(folder.parent, ((description, files),))
    except InputError as error:
        raise error.named("path" if error.argument == "output" else error.argument) from None


def write_bundles(
    root: Path,
    bundles: Iterable[tuple[Operation, Mapping[str, str]]],
    groups: Iterable[tuple[Group, Mapping[str, str]]] = (),
    config: Config | None = None,
    folders: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """Write bundles and groups below `root`. A bundle is its description and the texts of its
    files.

    `folders`: the folder of each reshard that shares a bundle; None keeps the current ones.

    Returns the files that changed, including files removed because their bundle no longer has them.
    Files are first written under temporary names and renamed once all are on disk, the manifest
    last; other bundles of `root` stay unchanged. `config`: the file that owns `root`; if all its
    operations are given, bundles that it does not describe are removed. Support modules go next to
    the bundles. Raises InputError, with nothing changed, for a folder that cannot be written, has
    foreign contents or is not named like a package; for bundles that the folder's own config does
    not describe; for names that differ only in case; and for support modules of a different version
    that other bundles use. A file that was edited by hand since its emission is overwritten: a copy
    of the edited file stays next to it, and a warning names both files.
    """
    _check_package(Path(os.path.abspath(root)))
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            return _write(root, tuple(bundles), tuple(groups), config, folders)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            argument="output",
            got=error.filename or str(root),
            expected="a folder that can be created and written",
        ) from None


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Lock a root for a single writer, so that no manifest entries are lost."""
    folder = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(
    root: Path,
    bundles: tuple[tuple[Operation, Mapping[str, str]], ...],
    groups: tuple[tuple[Group, Mapping[str, str]], ...],
    config: Config | None,
    shared: Mapping[str, str] | None,
) -> tuple[Path, ...]:
    before = read_manifest(root)
    given: list[Operation | Group] = [each for each, _ in bundles]
    given += [each for each, _ in groups]
    check_owner(root, before, given, config)
    folders = {description.name: files for description, files in bundles}
    folders |= {group.name: files for group, files in groups}
    after = before.updated(
        tuple(_entry(description, files, shared, before) for description, files in bundles),
        tuple(GroupEntry.of(group, files) for group, files in groups),
    )
    if config is not None:
        after = replace(after, config=owner_of(root, config))
        said = {*config.modules().values()}
        after = after.only(said) if folders.keys() >= said else after
    for name in folders:
        _check_case(name, after)
    _check_versions(before, after, set(folders))
    used = after.supported()
    support = support_files(used, **after.support_kinds())
    package = package_text(after.modules())
    support_entry = SupportEntry.of(versions(used), support)
    after = replace(after, support=support_entry, package=((PACKAGE_FILE, sha256(package)),))
    folders |= {SUPPORT: support} if support else {}
    _check_package_file(root / PACKAGE_FILE)
    for name, files in folders.items():
        _check_ours(root / name, files, before)
    texts = {root / f / name: text for f, files in folders.items() for name, text in files.items()}
    texts[root / PACKAGE_FILE] = package
    changed = {path: text for path, text in texts.items() if _differs(path, text)}
    stale = _stale(root, before, after)
    for path in _edited(root, before, (*changed, *stale)):
        copy = shutil.copyfile(path, path.with_name(f".{path.name}.edited"))
        warning = f"{path} was edited by hand; the edited file is now {copy.name} next to it"
        warnings.warn(warning, stacklevel=5)
    _replace(changed)
    removed = tuple(path for path in stale if os.path.lexists(path))
    for path in removed:
        path.unlink()
    for name in before.folders().keys() - after.folders().keys():
        shutil.rmtree(root / name / "__pycache__", ignore_errors=True)
        with contextlib.suppress(OSError):
            (root / name).rmdir()
    listing, listed = root / manifest.FILE, after.to_json()
    if _differs(listing, listed):
        changed[listing] = listed
        _replace({listing: listed})
    return (*changed, *removed)


def _entry(
    description: Operation,
    files: Mapping[str, str],
    shared: Mapping[str, str] | None,
    before: Manifest,
) -> Entry:
    """Return the manifest entry of a bundle with its other names: those in `shared` or, if `shared`
    is None, its previous ones."""
    if shared is not None:
        also = [name for name, folder in shared.items() if folder == description.name != name]
        return Entry.of(description, files, also)
    old = before.entry(description.name)
    same = old is not None and old.description == description
    return Entry.of(description, files, old.also if old is not None and same else ())


def _check_package_file(path: Path) -> None:
    is_empty = path.is_file() and not path.read_bytes()
    if path.exists() and not is_empty and not _is_ours(path):
        raise _not_ours(path)


def _is_ours(path: Path) -> bool:
    return path.is_file() and is_package(path.read_text("utf-8", "replace"))


def _check_package(root: Path) -> None:
    if not root.name.isidentifier() or keyword.iskeyword(root.name):
        raise InputError(
            "the folder of bundles is a Python package, so its name must be an identifier",
            argument="output",
            got=root.name or str(root),
            expected="letters, digits and underscores, not starting with a digit; not a keyword",
        )
    if root.name in IMPORTED:
        raise InputError(
            "the folder of bundles must not hide a module that bundles import",
            argument="output",
            got=root.name,
            expected="a name other than those of standard modules and packages that bundles import",
        )


def _check_versions(before: Manifest, after: Manifest, given: set[str]) -> None:
    for backend, version in versions(after.supported()).items():
        found = dict(before.support.versions).get(backend, version)
        others = [
            entry.description.name
            for entry in after.entries
            if entry.description.name not in given and backend in entry.description.supported
        ]
        if found != version and others:
            raise InputError(
                f"other bundles of this folder use a different version of the support modules of "
                f"{backend}: {', '.join(others[:8])}",
                argument="output",
                got=found,
                expected=f"{version}: run `shardwright emit` on {manifest.FILE} to update all",
            )


def _check_case(name: str, after: Manifest) -> None:
    alike = [n for n in after.folders() if n != name and n.casefold() == name.casefold()]
    if alike:
        raise InputError(
            "names of bundles must differ in more than case",
            argument="name",
            got=f"{name} and {alike[0]}",
            expected="a name that differs even on file systems that ignore case",
        )


def _check_ours(folder: Path, files: Mapping[str, str], before: Manifest) -> None:
    """Raise InputError for files in a folder that is not a bundle, unless they already have the
    text to write, as after an interrupted run."""
    if folder.name in before.folders():
        return
    for name, text in files.items():
        if (folder / name).exists() and _differs(folder / name, text):
            raise _not_ours(folder / name)


def _not_ours(path: Path) -> InputError:
    return InputError(
        "refusing to overwrite a file that shardwright did not write",
        argument="output",
        got=str(path),
        expected="a different name for the bundle, or that file moved away",
    )


def _stale(root: Path, before: Manifest, after: Manifest) -> tuple[Path, ...]:
    now = after.folders()
    return tuple(
        root / folder / name
        for folder, names in before.folders().items()
        for name in sorted(set(names) - set(now.get(folder, ())))
    )


def _edited(root: Path, before: Manifest, paths: Iterable[Path]) -> Iterator[Path]:
    hashes = before.hashes()
    for path in paths:
        emitted = hashes.get(path.parent.name, {}).get(path.name)
        if path.parent == root or emitted is None or not path.is_file():
            continue
        if sha256(path.read_bytes().decode(errors="replace")) != emitted:
            yield path


def _differs(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_bytes() != text.encode()


def _replace(texts: Mapping[Path, str]) -> None:
    """Write files under temporary names, then rename them all."""
    ready: list[tuple[Path, Path]] = []
    made: list[Path] = []
    try:
        for path, text in texts.items():
            if path.is_dir():  # would otherwise be detected only after other files are renamed
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not path.parent.is_dir():
                path.parent.mkdir()
                made.append(path.parent)
            temporary = path.with_name(f".{path.name}.tmp")
            ready.append((temporary, path))
            temporary.write_bytes(text.encode())
        for temporary, path in ready:
            os.replace(temporary, path)
    except BaseException:
        for temporary, _ in ready:
            temporary.unlink(missing_ok=True)
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def write_file(path: Path, text: str) -> None:
    """Write one file; on an OSError leave it unchanged."""
    _replace({path: text})
