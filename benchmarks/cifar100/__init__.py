"""Every method on real CIFAR-100: one resumable command, one page of tables."""
