"""A page on which people and a model agree, served on this machine alone.

`desk.Desk` stands between the page and the model; `server` serves it, `service` only predicts.

May import: common, storage, data, features, pages, evaluation, models.
"""
