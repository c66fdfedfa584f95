"""How work tells how far it is."""

from scansnap.progress import share


def test_pieces_of_work_add_up_to_the_whole():
    seen = []
    for i in range(3):
        piece = share(lambda done, total: seen.append(done / total), i, 3)
        for done in (0, 4, 8):
            piece(done, 8)
    assert seen == sorted(seen)
    assert (seen[0], seen[4], seen[-1]) == (0, 0.5, 1)
    assert share(None, 1, 3) is None
