"""Steps of all ranks side by side: aligned records and clocks, waits, means over a window, and simulated gains."""
