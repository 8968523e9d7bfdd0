"""Consumer groups: created, changed, deleted, remembered, in RocketMQ's file."""

import json

import pytest

from rockstrata.errors import ConfigError, DiskFullError
from rockstrata.store.config_file import ConfigFile, DataVersion
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.subscription_groups import SubscriptionGroup, SubscriptionGroups
from rockstrata.testing.manual_clock import ManualClock

# Written by RocketMQ 5.5.0; `future` was added by hand.
JAVA_5_5_0 = """{
\t"dataVersion":{
\t\t"counter":4,
\t\t"stateVersion":0,
\t\t"timestamp":1794779989764
\t},
\t"forbiddenTable":{
\t\t"g1":{
\t\t\t"t":1
\t\t}
\t},
\t"subscriptionGroupTable":{
\t\t"g1":{
\t\t\t"attributes":{},
\t\t\t"brokerId":0,
\t\t\t"consumeBroadcastEnable":true,
\t\t\t"consumeEnable":true,
\t\t\t"consumeFromMinEnable":true,
\t\t\t"consumeMessageOrderly":false,
\t\t\t"consumeTimeoutMinute":15,
\t\t\t"future":[1],
\t\t\t"groupName":"g1",
\t\t\t"groupRetryPolicy":{
\t\t\t\t"type":"CUSTOMIZED"
\t\t\t},
\t\t\t"groupSysFlag":0,
\t\t\t"notifyConsumerIdsChangedEnable":true,
\t\t\t"retryMaxTimes":3,
\t\t\t"retryQueueNums":1,
\t\t\t"whichBrokerWhenConsumeSlowly":1
\t\t}
\t}
}"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "subscriptionGroup.json"


@pytest.fixture
def new_groups(path):
    return lambda disk=None: SubscriptionGroups(ConfigFile(path, disk or PosixDisk()), ManualClock())


def loaded(groups: SubscriptionGroups) -> SubscriptionGroups:
    groups.load()
    return groups


def test_a_group_has_rocketmqs_defaults_and_survives_a_restart(new_groups):
    new_groups().ensure(SubscriptionGroup(group_name="g"))
    group = loaded(new_groups()).get("g")
    assert group == SubscriptionGroup(group_name="g", retry_max_times=16, retry_queue_nums=1)
    assert loaded(new_groups()).data_version == DataVersion(counter=1, timestamp=1_700_000_000_000)


def test_rocketmqs_file_is_read_and_what_only_rocketmq_knows_is_kept(new_groups, path):
    path.parent.mkdir()
    path.write_text(JAVA_5_5_0)
    groups = loaded(new_groups())
    assert groups.get("g1").retry_max_times == 3

    groups.ensure(SubscriptionGroup(group_name="g1"), SubscriptionGroup(group_name="g2"))
    groups.create_or_update(SubscriptionGroup(group_name="g1", retry_max_times=5))

    written = json.loads(path.read_text())
    expected = json.loads(JAVA_5_5_0)["subscriptionGroupTable"]["g1"] | {"retryMaxTimes": 5}
    assert written["subscriptionGroupTable"]["g1"] == expected
    assert written["forbiddenTable"] == {"g1": {"t": 1}}
    assert written["dataVersion"]["counter"] == 6
    assert set(loaded(new_groups()).all()) == {"g1", "g2"}


def test_a_group_can_be_deleted_once(new_groups):
    groups = new_groups()
    groups.ensure(SubscriptionGroup(group_name="g"))
    assert groups.delete("g")
    assert not groups.delete("g")
    assert loaded(new_groups()).all() == {}


def test_a_group_without_name_is_refused_and_one_that_cannot_be_saved_does_not_exist(new_groups):
    class FullDisk(PosixDisk):
        def write_file(self, path, data):
            raise DiskFullError("disk full", path=path)

    groups = new_groups(FullDisk())
    with pytest.raises(ConfigError, match="needs a name"):
        groups.create_or_update(SubscriptionGroup())
    with pytest.raises(DiskFullError):
        groups.ensure(SubscriptionGroup(group_name="g"))
    assert groups.all() == {}


def test_a_group_of_the_wrong_shape_is_an_error(new_groups, path):
    path.parent.mkdir()
    path.write_text('{"subscriptionGroupTable":{"g":{"retryMaxTimes":"many"}}}')
    with pytest.raises(ConfigError, match=r"group g is not usable.*subscriptionGroup\.json"):
        new_groups().load()
