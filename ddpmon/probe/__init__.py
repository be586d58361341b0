"""Inside a rank: hooks DDP, DataLoader, optimizers and backward, and sends what was measured.

The only code that imports torch.
"""
