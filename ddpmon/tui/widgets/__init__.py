"""The parts of the screens. Each is a pure function from a frame to lines, and a pane that shows them."""
