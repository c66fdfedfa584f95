"""The run that is shipped with the page is the default run, computed as it would be now."""

import numpy as np
import pytest

from scansnap.explorer.live.first import FILE, first_run, parts
from scansnap.explorer.protocol import unpack_frames

REMEDY = "the default run has changed: python -m scansnap.explorer.live.first"


def test_the_shipped_run_is_the_default_run() -> None:
    (shipped, frames), (now, fresh) = parts(FILE.read_bytes()), parts(first_run())
    for field in ("setup", "classes", "layout", "steps", "step", "state", "marks"):
        assert getattr(shipped, field) == getattr(now, field), f"{field}: {REMEDY}"
    for field in ("t_scan", "t_snap", "c0"):
        assert getattr(shipped.theory, field) == pytest.approx(getattr(now.theory, field)), f"{field}: {REMEDY}"
    (*_, steps, values), (*_, steps_now, values_now) = unpack_frames(frames), unpack_frames(fresh)
    np.testing.assert_array_equal(steps, steps_now, err_msg=REMEDY)
    # other processors round differently; the page draws a thousandth of the largest value as nothing
    np.testing.assert_allclose(values, values_now, rtol=1e-3, atol=1e-5, err_msg=REMEDY)


def test_it_is_complete_and_belongs_to_no_server() -> None:
    shipped, frames = parts(FILE.read_bytes())
    assert (shipped.run, shipped.state, shipped.step) == ("", "done", shipped.steps)
    *_, steps, values = unpack_frames(frames)
    assert (steps[0], steps[-1]) == (0, shipped.steps)
    assert values.shape[1] == shipped.layout.floats
