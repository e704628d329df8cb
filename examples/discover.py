"""`Goal`, scikit-learn-style, on digits held in memory: python examples/discover.py"""

import numpy as np
from sklearn.datasets import load_digits

from goal import Goal

digits = load_digits()
images = np.rint(digits.images * 255 / 16).astype(np.uint8)
order = np.arange(len(images))
labelled = (digits.target < 4) & (order < 900)
unlabelled = (digits.target < 6) & (order >= 900)

goal = Goal(backbone="digits-vit", random_state=0)
goal.fit(images[labelled], digits.target[labelled])
goal.discover(images[unlabelled], n_new="auto")
print("classes:", ", ".join(goal.classes_))

names = goal.predict(images[unlabelled])
for digit in range(6):
    found, counts = np.unique(names[digits.target[unlabelled] == digit], return_counts=True)
    print(f"digit {digit} came out as", dict(zip(found.tolist(), counts.tolist(), strict=True)))
