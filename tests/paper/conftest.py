"""What the tests of figures and studies on text share."""

import pytest
from tiny_corpus import tiny_effort


@pytest.fixture(scope="module")
def effort(tmp_path_factory):
    """A quick effort on a tiny text, with runs to match."""
    with pytest.MonkeyPatch.context() as patch:
        yield tiny_effort(tmp_path_factory.mktemp("text"), patch)
