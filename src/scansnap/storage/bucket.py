"""Objects in an S3 bucket, of Amazon or of any compatible server.

Credentials come from the environment (``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, or ``AWS_PROFILE``), from
``~/.aws``, or by the role of the machine. They are never sent to workers, which use their own. An option or
``AWS_ENDPOINT_URL`` names another server than Amazon's; workers receive it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scansnap.checks import InputError
from scansnap.checks.extras import missing_package
from scansnap.storage.objects import Entry, entry_of_bytes

_BATCH = 64  # objects asked for together


@dataclass(frozen=True)
class Bucket:
    """Objects under a prefix of a bucket."""

    address: str  # s3://bucket/prefix
    endpoint: str | None = None

    trusted = True  # S3 keeps checksums of its own

    @classmethod
    def of(cls, address: str, field: str, endpoint: str | None = None) -> Bucket:
        """Check an address and that s3fs is installed."""
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        if not bucket or not prefix.strip("/") or "//" in prefix:
            raise InputError(field, address, "an address s3://bucket/prefix")
        try:
            import s3fs  # noqa: F401
        except ImportError:
            raise missing_package(field, address, "a folder", "s3fs") from None
        endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise InputError("--endpoint", endpoint, "an address http://… or https://…")
        return cls(address.rstrip("/"), endpoint)

    def __str__(self) -> str:
        return self.address

    @property
    def _root(self) -> str:
        return self.address.removeprefix("s3://")

    @property
    def _options(self) -> dict[str, Any]:
        return {"endpoint_url": self.endpoint, "use_listings_cache": False, "skip_instance_cache": False}

    @property
    def _system(self) -> Any:
        import s3fs

        return s3fs.S3FileSystem(**self._options)  # one for each set of options and process

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of botocore and s3fs into an OSError with a readable message."""
        from botocore import exceptions as boto

        try:
            yield
        except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
            message = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            raise PermissionError(13, message) from error
        except (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ConnectionClosedError) as error:
            raise ConnectionError(111, f"{self.endpoint or 'Amazon S3'} cannot be reached") from error
        except boto.BotoCoreError as error:
            raise OSError(5, " ".join(str(error).split())) from error
        except PermissionError as error:
            raise PermissionError(13, f"these credentials may not do it: {_first(error)}") from error
        except FileNotFoundError as error:
            if "bucket" in str(error).lower():
                raise OSError(2, f"there is no bucket {self._root.partition('/')[0]}") from error
            raise
        except FileExistsError:
            raise
        except OSError as error:
            raise OSError(error.errno or 5, error.strerror or _first(error)) from error

    def exists(self) -> bool:
        with self._translated_errors():
            return bool(self._system.exists(self._root))

    def check_writable(self, field: str) -> None:
        probe = f"{self._root}/.scansnap-probe"
        try:
            with self._translated_errors():
                self._system.pipe_file(probe, b"")
                self._system.rm_file(probe)
        except OSError as error:
            allowed = f"an address s3://bucket/prefix that can be written ({error.strerror or error})"
            raise InputError(field, self.address, allowed) from None

    def get(self, name: str) -> bytes:
        with self._translated_errors():
            return bytes(self._system.cat_file(f"{self._root}/{name}"))

    def contents(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | str]]:
        todo = list(names)
        for first in range(0, len(todo), _BATCH):
            some = todo[first : first + _BATCH]
            with self._translated_errors():
                objects = self._system.cat([f"{self._root}/{name}" for name in some], on_error="return")
            for name in some:
                content = objects[f"{self._root}/{name}"] if isinstance(objects, dict) else objects
                if isinstance(content, FileNotFoundError):
                    yield name, "is missing"
                else:
                    yield name, content if isinstance(content, bytes) else f"cannot be read ({_first(content)})"

    def digests(self, names: Iterable[str]) -> Iterator[tuple[str, Entry | str]]:
        for name, content in self.contents(names):
            yield name, content if isinstance(content, str) else entry_of_bytes(content)

    def sizes(self) -> dict[str, int]:
        with self._translated_errors():
            objects = self._system.find(self._root, detail=True)
        start = len(self._root) + 1
        return {key[start:]: info["size"] for key, info in sorted(objects.items()) if "/." not in key[start - 1 :]}

    def put(self, contents: Mapping[str, bytes]) -> None:
        if contents:
            with self._translated_errors():
                self._system.pipe({f"{self._root}/{name}": content for name, content in contents.items()})

    def remove(self, names: Iterable[str]) -> None:
        todo = [f"{self._root}/{name}" for name in names]
        if todo:
            with self._translated_errors():
                self._system.rm(todo)

    def begin(self, contents: Mapping[str, bytes], last: str, *, replaces: bool) -> None:
        old = self.sizes()
        if old and not replaces:
            raise FileExistsError(f"{self} exists")
        self.remove([last] if last in old else [])  # from now on there is no store here, for anybody
        self.remove(name for name in old if name != last)
        self.put({name: content for name, content in contents.items() if name != last})
        with self._translated_errors():
            # of two that begin at once one is refused
            self._system.pipe_file(f"{self._root}/{last}", contents[last], mode="create")

    def sync(self) -> None:
        pass  # a bucket writes through

    def tidy(self) -> None:
        pass  # a failed upload leaves nothing

    def zarr(self, *, write: bool = False) -> Any:
        from zarr.storage import FsspecStore

        from scansnap.storage.zarr_store import CheckedStore

        store = FsspecStore.from_url(self.address, storage_options=self._options, read_only=not write)
        return CheckedStore(store, self)


def _first(error: BaseException) -> str:
    """An error in one line."""
    return " ".join((str(error) or type(error).__name__).split())[:200]
