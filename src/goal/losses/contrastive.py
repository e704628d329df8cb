"""Contrast between views and between labels.

Shapes: V views, B images, E embedding width; all embeddings are unit vectors.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def info_nce(first_BE: Tensor, second_BE: Tensor, temperature: float) -> Tensor:
    """Unsupervised contrast between two views of each image (GOAL, eq. 5; GCD, eq. 1).

    The positive of a view is the other view of its image; every other view in the batch is a
    negative. Averaged over both directions.
    """
    batch = len(first_BE)
    embeddings = torch.cat([first_BE, second_BE])
    logits = embeddings @ embeddings.T / temperature
    logits = logits.masked_fill(torch.eye(2 * batch, dtype=torch.bool, device=logits.device), -1e9)
    partner = torch.arange(2 * batch, device=logits.device).roll(batch)
    return F.cross_entropy(logits, partner)


def sup_con(first_BE: Tensor, second_BE: Tensor, labels_B: Tensor, temperature: float) -> Tensor:
    """Supervised contrast (GOAL, eq. 6): all other views of the same label are positives.

    For each view, the mean over its positives of ``-log`` their share of the softmax over every
    other view; then the mean over views.
    """
    embeddings = torch.cat([first_BE, second_BE])
    labels = labels_B.repeat(2)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    logits = (embeddings @ embeddings.T / temperature).masked_fill(itself, -1e9)
    log_share = logits.log_softmax(dim=1)
    return -((log_share * positive).sum(dim=1) / positive.sum(dim=1)).mean()
