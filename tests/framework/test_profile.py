"""Profiles by their schedulerName."""

from __future__ import annotations

from dataclasses import replace

from extender.framework.profile import Profile, Profiles
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import KINDS
from extender.table.features import FeatureGates


def test_a_changed_copy_of_profiles_keeps_all_that_they_share() -> None:
    extenders = [ExtenderConfig("http://extender")]
    watch = [KINDS["Service"]]
    both = [Profile("a", (), ()), Profile("b", (), ())]
    profiles = Profiles(both, FeatureGates(generic_workload=True), extenders, watch)
    copy = profiles.with_each(lambda profile: replace(profile, name=f"{profile.name}-2"))
    assert copy.names == ("a-2", "b-2")
    assert (copy.features, copy.extenders, copy.watch) == (profiles.features, extenders, watch)
