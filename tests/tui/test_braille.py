"""The canvas against literal block art."""

from ddpmon.tui.braille import Canvas


def art(canvas: Canvas) -> str:
    return "\n".join(canvas.rows())


def test_a_dot_in_each_corner():
    canvas = Canvas(2, 2)
    for x, y in ((0, 0), (3, 0), (0, 7), (3, 7)):
        canvas.dot(x, y)
    assert art(canvas) == "⠁⠈\n⡀⢀"


def test_every_dot_of_a_cell():
    drawn = ""
    for x in range(2):
        for y in range(4):
            canvas = Canvas(1, 1)
            canvas.dot(x, y)
            drawn += art(canvas)
    assert drawn == "⠁⠂⠄⡀⠈⠐⠠⢀"


def test_nothing_is_drawn_outside():
    canvas = Canvas(1, 1)
    for x, y in ((-1, 0), (2, 0), (0, -1), (0, 4)):
        canvas.dot(x, y)
    canvas.stroke(5, 0, 3)
    assert art(canvas) == " "


def test_a_stroke_is_cut_at_the_edges_and_takes_its_ends_in_either_order():
    canvas = Canvas(1, 2)
    canvas.stroke(0, 100, 2)
    canvas.stroke(1, -5, 4)
    assert art(canvas) == "⣼\n⡏"


def test_a_falling_and_a_rising_line():
    canvas = Canvas(4, 2)
    canvas.line([0, 1, 2, 3, 4, 5, 6, 7])
    assert art(canvas) == "⠑⢄  \n  ⠑⢄"
    canvas = Canvas(4, 2)
    canvas.line([7, 6, 5, 4, 3, 2, 1, 0])
    assert art(canvas) == "  ⡠⠊\n⡠⠊  "


def test_a_step_is_one_unbroken_stroke():
    canvas = Canvas(2, 2)
    canvas.line([7, 7, 0, 0])
    assert art(canvas) == "⢀⡏\n⣸ "


def test_a_missing_value_breaks_the_line():
    canvas = Canvas(3, 1)
    canvas.line([0, 0, None, None, 3, 3])
    assert art(canvas) == "⠉ ⣀"


def test_an_empty_canvas():
    assert Canvas(0, 0).rows() == []
    assert Canvas(0, 2).rows() == ["", ""]
    assert Canvas(-3, 1).rows() == [""]
