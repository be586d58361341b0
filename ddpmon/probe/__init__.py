"""Inside a rank: hooks DDP, DataLoader, optimizers and backward, and sends what they tell.

The only code that imports torch.
"""
