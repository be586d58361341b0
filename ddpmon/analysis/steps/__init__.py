"""Step records of many ranks side by side: clocks, waits, means over a window, what a change would gain."""
