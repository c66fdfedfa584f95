"""The built file in chromium, for all tests of this folder."""

import pytest
from browser import PHONE, QUICK, SCREEN, Page


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The address of the explorer's file."""
    from scansnap.explorer.build import explorer_html

    file = tmp_path_factory.mktemp("explorer") / "explorer.html"
    file.write_text(explorer_html(), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def explorer(browser, built):
    """Opens the file in a tab of its own; a tab with an error, a request or a policy violation fails the test."""
    tabs = []

    def open_tab(where="", **options):
        tabs.append(Page(browser, built, **options))
        return tabs[-1].open(where)

    yield open_tab
    for tab in tabs:
        tab.check_quiet()
        tab.context.close()


@pytest.fixture(scope="module")
def shared(browser, built):
    tab = Page(browser, built)
    yield tab
    tab.context.close()


@pytest.fixture
def show(shared):
    """The module's tab, reloaded at an address, with its film complete; nothing is left of the test before."""

    def open_address(where=QUICK, phone=False, complete=True):
        shared.page.set_viewport_size(PHONE if phone else SCREEN)
        shared.forget()
        shared.open(where)
        return shared.settle() if complete else shared

    yield open_address
    shared.check_quiet()


@pytest.fixture
def page(show):
    return show()
