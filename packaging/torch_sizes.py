"""What torch of the lock costs to download and to unpack, without downloading it: the table of docs/start.md.

.venv/bin/python packaging/torch_sizes.py [--tag cp311]

For Linux (x86-64) torch and what comes with it, Triton and NVIDIA's packages; for the others torch alone. The size of a
file is what the package index answers to HEAD; what it unpacks to stands in the list of files at the end of the wheel,
read by a range request.
"""

from __future__ import annotations

import argparse
import html.parser
import io
import re
import urllib.request
import zipfile
from collections.abc import Iterator
from urllib.parse import urldefrag, urljoin

from install import pip_settings
from lock import LOCK

LINUX = r"manylinux.*x86_64|-none-any"
TORCH = r"^(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==([^\s;]+)"


class Remote(io.RawIOBase):
    """A file on a server that answers range requests."""

    def __init__(self, url: str):
        self.url, self.position = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            self.size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self.position + len(buffer), self.size)
        if end <= self.position:
            return 0
        part = urllib.request.Request(self.url, headers={"Range": f"bytes={self.position}-{end - 1}"})
        with urllib.request.urlopen(part) as answer:
            if answer.status != 206:
                raise SystemExit("the package index answers no range requests")
            content = answer.read()
        buffer[: len(content)] = content
        self.position += len(content)
        return len(content)


class Links(html.parser.HTMLParser):
    """The addresses that a page of the index names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def wheels(index: str, name: str, version: str, tag: str) -> Iterator[tuple[str, str]]:
    """File name and address of every wheel that fits the Python, whatever the platform."""
    page, links = f"{index.rstrip('/')}/{name}/", Links()
    with urllib.request.urlopen(page) as answer:
        links.feed(answer.read().decode())
    for link in links.found:
        address = urldefrag(urljoin(page, link)).url
        file = address.rpartition("/")[2]
        fits = re.search(rf"-{re.escape(version)}-({tag}-{tag}|py[23.py]+-none)-.*\.whl$", file)
        if fits:
            yield file, address


def sizes(address: str) -> tuple[int, int]:
    """Bytes to download, and bytes unpacked."""
    remote = Remote(address)
    with zipfile.ZipFile(io.BufferedReader(remote, 1 << 20)) as wheel:
        return remote.size, sum(file.file_size for file in wheel.infolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", default="cp311", help="of the Python that the wheels are for")
    tag = parser.parse_args().tag
    from pip._internal.models.index import PyPI

    index = pip_settings().get("index-url") or PyPI.simple_url
    total = [0, 0]
    for name, version in re.findall(TORCH, LOCK.read_text(encoding="utf-8"), re.M):
        for file, address in wheels(index, name, version, tag):
            on_linux = re.search(LINUX, file)
            if on_linux or name == "torch":
                download, unpacked = sizes(address)
                print(f"{file}: {download / 1e9:.3f} GB, unpacked {unpacked / 1e9:.3f} GB", flush=True)
                if on_linux:
                    total = [total[0] + download, total[1] + unpacked]
    print(f"all for Linux (x86-64): {total[0] / 1e9:.2f} GB, unpacked {total[1] / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
