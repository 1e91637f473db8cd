"""OB2I's gradient step in PyTorch: the same network and loss, channels last, fused Adam."""

import sys
import time

import numpy as np
import torch
from torch import nn

HEADS, ACTIONS, UNITS, BATCH = 10, 4, 512, 32


class ShrinkGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient / HEADS


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.hidden = nn.Linear(3136, HEADS * UNITS)
        self.output = nn.Parameter(0.05 * torch.randn(HEADS, UNITS, ACTIONS))
        self.bias = nn.Parameter(torch.zeros(HEADS, ACTIONS))

    def forward(self, observations):
        features = ShrinkGradient.apply(self.trunk(observations.float() / 255))
        hidden = torch.relu(self.hidden(features)).reshape(-1, HEADS, UNITS).transpose(0, 1)
        return torch.bmm(hidden, self.output).transpose(0, 1) + self.bias


def main():
    torch.manual_seed(0)
    network = QNetwork().to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(network.parameters(), lr=2.5e-4, eps=1e-7, fused=True)
    observations = torch.randint(256, (BATCH, 4, 84, 84), dtype=torch.uint8)
    observations = observations.to(memory_format=torch.channels_last)
    actions = torch.randint(ACTIONS, (BATCH, 1, 1)).expand(BATCH, HEADS, 1)
    targets = torch.randn(BATCH, HEADS)
    times, end = [], time.perf_counter() + float(sys.argv[1])
    while time.perf_counter() < end or len(times) < 8:
        start = time.perf_counter()
        taken = network(observations).gather(2, actions)[..., 0]
        loss = ((targets - taken) ** 2).mean()
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        adam.step()
        assert np.isfinite(loss.item())
        times.append(1e3 * (time.perf_counter() - start))
    print(f'PyTorch {torch.__version__} {np.median(times[3:])}')


if __name__ == '__main__':
    main()
