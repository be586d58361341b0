"""Code inside a rank: it hooks DDP, DataLoader, optimizers and backward, and sends measurements to the hub.

No other part of ddpmon imports torch.
"""
