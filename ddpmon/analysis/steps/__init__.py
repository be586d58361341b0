"""Step records of many ranks side by side: clocks, waits, means over a window, gains of a change."""
