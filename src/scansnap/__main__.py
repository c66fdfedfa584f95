"""Entry point of ``scansnap`` and ``python -m scansnap``: Ctrl-C ends it quietly from the first moment on."""

from __future__ import annotations

from scansnap.interrupt import handle_sigterm


def main() -> None:
    """The command line; it takes a moment to load."""
    with handle_sigterm():
        from scansnap.cli.app import main as command_line

        command_line()


if __name__ == "__main__":
    main()
