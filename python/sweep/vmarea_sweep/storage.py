"""Folders of a local disk or of an object store, and files in them that are complete or absent.

Paths are those of pyarrow (`s3://bucket/folder?region=...`, `gs://`, `hdfs://`, a local path) or, for every other
scheme, of fsspec (`abfs://`, `memory://`, ...).
"""

import os
import posixpath
import uuid

from pyarrow import fs

# An object appears in these stores when its upload is complete, and renaming would copy it.
OBJECT_STORES = {"s3", "gcs", "abfs"}


def resolve(uri):
    """Returns the file system of a path or URI, and the path in it.

    Raises `ValueError` for a scheme that neither pyarrow nor an installed fsspec package knows.
    """
    if "://" not in uri:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    try:
        return fs.FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError) as unknown:
        try:
            import fsspec

            system, path = fsspec.core.url_to_fs(uri)
        except (ImportError, ValueError):
            raise ValueError(f"{uri}: neither pyarrow nor fsspec can open it: {unknown}") from unknown
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def store(system, path, data):
    """Stores `data` as a file that appears when it is complete, with all folders above it.

    A file of that name is replaced. Raises `OSError` if it cannot be written; then no file remains.
    """
    if system.type_name in OBJECT_STORES:
        # All data is in memory, so that a process that ends here begins no upload or completes it.
        with system.open_output_stream(path) as out:
            out.write(data)
        return
    folder, name = posixpath.split(path)
    system.create_dir(folder, recursive=True)
    # Readers leave out names that begin with a dot.
    temporary = posixpath.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        if isinstance(system, fs.LocalFileSystem):
            write_through(temporary, data)
        else:
            with system.open_output_stream(temporary) as out:
                out.write(data)
        system.move(temporary, path)
    except BaseException:
        if system.get_file_info(temporary).type != fs.FileType.NotFound:
            system.delete_file(temporary)
        raise


def write_through(path, data):
    """Writes a file to the disk, so that the renamed file is complete even after the machine has lost power."""
    with open(path, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def exists(system, path):
    return system.get_file_info(path).type == fs.FileType.File


def files_below(system, folder):
    """Returns the `FileInfo` of all files below a folder, none if it does not exist; hidden ones are left out."""
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
    infos = system.get_file_info(selector)
    return [info for info in infos if info.type == fs.FileType.File and not info.base_name.startswith(".")]
