"""Published figures: each is found where it was printed, and nowhere else."""

from goal.report.published import ablation, confident_share, forgetting_discovery, stage_row


def test_newer_methods_have_averages_only() -> None:
    for method, average in (("vb_cgcd", 84.4), ("dydm", 79.72), ("promptccd", 58.8)):
        row = stage_row("cifar100", method, 5)
        assert row is not None and row.stages == [] and row.average["all"] == average
        assert stage_row("cifar100", method, 10) is None


def test_ten_stages_and_other_numbers_of_stages() -> None:
    row = stage_row("cifar100", "happy", 10)
    assert row is not None and len(row.stages) == 10 and row.average["all"] == 70.7
    assert stage_row("cifar100", "happy", 3) is None
    assert stage_row("digits", "happy", 5) is None


def test_figures_of_the_smaller_tables() -> None:
    assert forgetting_discovery("cifar100", "goal") == (11.82, 53.97)
    assert forgetting_discovery("cifar100", "simgcd") is None
    assert ablation("cifar100", False, True) == {"all": 71.2, "old": 81.2, "new": 52.4}
    assert ablation("digits", True, True) is None
    assert confident_share("cifar100", 0.7) == 72.1
    assert confident_share("cifar100", 0.5) is None and confident_share("cub", 0.7) is None
